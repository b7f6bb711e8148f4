"""The standby: object models that answer requests during an outage of the cloud, and only then.

May import `common`, and modules of the edge that it uses; start with `standby` and `standbys`.
"""
