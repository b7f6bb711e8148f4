"""The twin: simulates a session in virtual time, with the decision objects of the tiers and measured costs.

May import `rig` and what `rig` may import.
"""
