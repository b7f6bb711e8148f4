"""The demo on one machine: a museum, its visitors and all three tiers, without and with the edge cache.

May import all other packages of the experiments except `studies` and `testbed`.
"""
