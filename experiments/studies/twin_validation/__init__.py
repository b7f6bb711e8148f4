"""Validation of the twin against real daemons on the same traces; also fits the twin's costs.

May import rig, twin, testbed and `cachier.prefetching`; only tests import it.
"""
