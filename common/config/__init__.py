"""Configuration: one frozen, validated settings class per daemon, and the origin of each value.

May import `command_line` and `rpc`.
"""
