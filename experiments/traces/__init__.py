"""Traces: visits, the photos that a replay sends, and requests for models; generated and as tables.

May import `datasets` and what `datasets` may import.
"""
