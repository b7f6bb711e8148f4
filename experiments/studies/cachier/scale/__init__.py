"""The evaluation of scale (dissertation, chapter 6): operating points, sessions and their metrics.

May import twin, testbed, rig and what these may import.
"""
