"""Measures tables and figures: cells, result files, targets, the registry, progress, style of pictures.

May import `common` only. Every other package of `experiments` may import it.
"""
