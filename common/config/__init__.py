"""Configuration: one frozen, validated settings class per daemon, and where each value came from.

May import `command_line` and `rpc`.
"""
