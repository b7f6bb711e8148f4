"""A crowd that moves to another section, before the edge's decision objects on a virtual clock.

May import `edge` and `traces`; nothing imports it but tests.
"""
