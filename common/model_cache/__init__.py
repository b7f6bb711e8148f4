"""The model cache: decides which DL models stay in memory, and which are evicted for others.

Pure objects without threads, clocks, disks or models: events with their times go in, decisions come out.
`model_cache` is the entry point; each policy is a module of `policies`. May import: `common.errors`.
Sources: CremeBrulee and mCache.
"""
