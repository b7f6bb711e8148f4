"""Eviction policies, one per module. `registry` in the parent package finds them.

May import: `model_cache.policy`, and the estimators in the parent package.
"""
