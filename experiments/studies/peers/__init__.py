"""Devices that share: nothing is lost when they die, and they load the edge less.

May import `cachier.prefetching` and the rig; nothing imports it but tests.
"""
