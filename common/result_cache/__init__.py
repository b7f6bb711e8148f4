"""The result cache: answers are reused for inputs that have the same approximate key, under error control.

Pure objects: keys, values and times go in, decisions come out; only `approximate_key_cache` and `stage` take
locks. May import: the root of `common`; `stage` also `request` and values of `catalogue` and `recognition`.
Source: approximate-key caching with auto-refresh.
"""
