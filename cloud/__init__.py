"""The cloud: owns the catalogues, takes objects in, answers what the edge cannot.

Start with `daemon`, then `service`; `catalogues` are those that it serves (see `common/catalogue`).
May import: `common` and `protos`, no other tier.
"""
