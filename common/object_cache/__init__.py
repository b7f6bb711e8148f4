"""The object cache: equation 2.3 and what feeds it on more than one tier (Cachier, chapters 2 to 4).

Pure objects: facts and a time go in, decisions come out. No socket, thread or clock; only profiles are files.
May import: `common.errors`, `protos`. What one tier alone decides with stands in that tier.
"""
