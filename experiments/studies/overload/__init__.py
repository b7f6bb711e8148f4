"""Too many requests: who fails, and how soon all is as before. No paper has it.

May import twin, rig, the studies of chapter 6, and what these may import.
"""
