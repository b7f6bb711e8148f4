"""A procedural museum: distinct exhibits and phone photos of them, everything from a seed."""
