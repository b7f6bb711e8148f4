"""The model cache: which DL models stay in memory, and what makes room for the next one.

Pure objects: facts and times go in, decisions come out; no thread, clock, disk or model. `model_cache` is the
front door, each policy is a file of `policies`. May import: `common.errors`. Sources: CremeBrulee and mCache.
"""
