"""Data sets: loaders for every layout, training of their objects, `nearsight evaluate`.

May import `framework` and `common`.
"""
