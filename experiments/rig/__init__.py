"""Runs a measurement session: processes, links, cache warm-up, replaying devices, result rows and metrics.

May import the tiers, `traces`, `datasets` and `links`, but not `twin`, `testbed` or `studies`.
"""
