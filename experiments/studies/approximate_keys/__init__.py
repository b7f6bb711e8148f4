"""Studies of approximate-key caching: its equations, its figures on generated traffic, similarity caching.

May import: `framework`, `common.result_cache`. The paper's traffic is private; `traffic` generates it.
"""
