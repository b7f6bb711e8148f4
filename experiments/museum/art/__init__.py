"""The pictures themselves: what a generated exhibit shows, and in which manner it is made.

May import nothing else of ours but errors.
"""
