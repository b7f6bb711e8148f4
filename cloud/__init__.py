"""The cloud: owns the catalogues, stores new objects, answers requests that the edge cannot answer.

Start with `daemon`, then `service`. `catalogues` holds the catalogues in service (see `common/catalogue`).
May import: `common` and `protos`, no other tier.
"""
