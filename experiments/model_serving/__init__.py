"""Model serving without an edge: the papers' models, a simulator of the real cache and policies, a planner.

May import: `framework`, `datasets`, `traces`, `common`, and the cloud's command `nearsight models`, which it
extends. Both studies of model caching use it.
"""
