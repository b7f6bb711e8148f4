"""The standby: models that answer alone while the cloud is away, and cost photos nothing while it answers.

May import common, and the modules of the edge that it serves; see `standby` and `standbys`.
"""
