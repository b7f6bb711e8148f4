"""Networks at the edge: downloaded from the cloud, and executed here or there, whichever is expected sooner.

`networks` decides, `downloads` transfers their files, `stage` and `service` answer requests. May import:
`common`, `protos`, the edge's `cloud_client`, `memory_partition`, `query` and `services`.
"""
