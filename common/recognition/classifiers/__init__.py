"""Indexes over the descriptors of object models: one interface, several backends.

`classifier` defines the interface and the common voting; `registry` lists the backends by name.
May import: `common.errors` and the models and settings of `common.recognition`.
"""
