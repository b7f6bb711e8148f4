"""A crowd that moves to another section, in front of an edge's decision objects on a virtual clock.

May import `edge` and `traces`; only tests import it.
"""
