"""Cooperating devices: no data is lost when devices fail, and the load of the edge is smaller.

May import `cachier.prefetching` and the rig; only tests import it.
"""
