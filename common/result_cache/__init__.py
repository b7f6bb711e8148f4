"""The result cache: answers are reused for inputs that have the same approximate key, under error control.

Pure objects: keys, values and times go in, decisions come out; only `approximate_key_cache` takes locks.
May import: `common.errors`, `common.clock`. Source: approximate-key caching with auto-refresh.
"""
