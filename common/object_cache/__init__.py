"""The object cache: equation 2.3 and its inputs, used by more than one tier (Cachier, chapters 2 to 4).

Pure objects: facts and a time are the input, decisions the output. No sockets, threads or clocks; only
profiles are read from files.
May import: `common.errors`, `protos`. Inputs that only one tier uses belong to that tier.
"""
