"""Serving models without an edge: the papers' models, and a simulator that runs the real cache and policies.

May import: `framework`, `traces`, `common.model_cache`. Both studies of model caching stand on it.
"""
