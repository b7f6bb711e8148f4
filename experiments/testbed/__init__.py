"""Daemons on processes, namespaces and lab machines from one inventory file; sweeps replayed on them.

May import the tiers, `traces`, `datasets`, `links`, `rig`; neither twin nor studies.
"""
