"""`nearsight profile`: measures f(k) and recall(k) of this machine, for edges and devices.

May import `datasets` and the tiers.
"""
