"""A procedural museum: synthetic exhibits and phone photos of them, all generated from a seed.

May import `datasets`, `traces` and what these may import.
"""
