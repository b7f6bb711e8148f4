"""Data sets: loaders for several layouts, training of their objects, `nearsight evaluate`.

May import `framework` and `common`.
"""
