"""Visitors' traces: generated walks through a museum, tables in and out, the photos that a replay sends.

May import `datasets` and what that may import.
"""
