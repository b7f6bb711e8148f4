"""Runs a measurement session: processes, links, cache warm-up, replaying devices, result rows and metrics.

May import the tiers, `framework`, `datasets`, `traces`, `museum`, `links` and `model_serving`, but not
`twin`, `testbed` or `studies`.
"""
