"""Eviction policies, one per module. `registry` in the parent package lists them.

May import: `common.errors`, `model_cache.policy`, and the base classes and the forecast in the parent
package.
"""
