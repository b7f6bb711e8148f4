"""The cloud: owns the catalogues, trains and indexes object models, answers what the edge cannot.

Start with `daemon`, then `service`; `store` keeps what `training` makes, `catalogue` serves it.
May import: `common` and `protos`, no other tier.
"""
