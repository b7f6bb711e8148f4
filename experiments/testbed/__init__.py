"""Runs daemons on processes, namespaces and lab machines from one inventory file, and replays sweeps on them.

May import the tiers, `traces`, `datasets`, `links` and `rig`, but not `twin` or `studies`.
"""
