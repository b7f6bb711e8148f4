"""Runs daemons on processes, namespaces and lab machines from one inventory file, and replays sweeps on them.

May import the tiers, `rig` and what `rig` may import, but not `twin` or `studies`.
"""
