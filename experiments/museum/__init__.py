"""A procedural museum: distinct exhibits and phone photos of them, everything from a seed.

May import `datasets`, `traces` and what these may import.
"""
