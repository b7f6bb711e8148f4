"""`nearsight bench`: comparisons with other libraries, as ratios of medians with their spread.

May import all rooms but `demo`.
"""
