"""The result cache: reuses answers for inputs with the same approximate key, with control of the error.

Pure objects: keys, values and times are the input, decisions the output. Only `approximate_key_cache` and
`stage` use locks. May import: the root of `common`; `image_keys` also values of `recognition`; `stage` also
`request` and values of `catalogue` and `recognition`.
Source: approximate-key caching with auto-refresh.
"""
