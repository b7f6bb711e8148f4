"""The key-value store that devices host for each other: values that merge, quorums, hand-over (5.4.3).

May import `routing`, `presence`, the settings of peers and `common`.
"""
