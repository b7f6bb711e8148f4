"""Indexes over the descriptors of object models: one interface, several backends.

`classifier` is the interface with the vote that all share, `registry` names the backends.
May import: `common.errors` and the models of `common.recognition`.
"""
