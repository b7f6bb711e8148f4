"""`nearsight bench`: benchmarks against other libraries; results are ratios of medians with their spread.

May import all packages of `experiments` but `demo`.
"""
