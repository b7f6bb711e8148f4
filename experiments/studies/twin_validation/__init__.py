"""The twin against real daemons, on the same traces; fits the twin's costs.

May import rig, twin, testbed and `cachier.prefetching`; nothing imports it but tests.
"""
