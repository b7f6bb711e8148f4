"""The key-value store that devices host for each other: mergeable values, quorums, hand-over (5.4.3).

May import `routing`, `presence`, the settings of peers and `common`.
"""
