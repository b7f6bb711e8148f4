"""Model serving without an edge: the papers' models, a simulator of the real cache and policies, a planner.

May import: `framework`, `datasets`, `traces`, `common`. Both studies of model caching use it.
"""
