"""Studies of approximate-key caching: its equations, its figures on generated traffic, similarity caching.

May import: `framework`, `museum`, `rig`, `twin`, `common.result_cache`, and `cachier.scale` for figure 6.4.
The paper's traffic is private; `traffic` generates a replacement.
"""
