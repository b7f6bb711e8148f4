"""Networks at the edge: fetched from the cloud, executed here or there, whichever is expected sooner.

`networks` decides, `fetching` brings files, `stage` and `service` answer. May import: `common`, the edge's
`cloud_client`, `query` and `load`.
"""
