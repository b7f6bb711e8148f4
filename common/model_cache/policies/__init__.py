"""Eviction policies, each a module; `registry` beside this package finds them.

May import: `model_cache.policy`, and the estimators beside it.
"""
