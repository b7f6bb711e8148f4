"""The evaluation of scale (dissertation, chapter 6): operating points, sessions there, their numbers.

May import twin, testbed, rig and what these may import.
"""
