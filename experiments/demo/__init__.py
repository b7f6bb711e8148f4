"""The main job on one machine: a museum, its visitors, all three tiers, without and with the edge cache.

May import every other room of the experiments but studies and testbed.
"""
