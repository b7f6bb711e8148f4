"""Traces: walks of visitors and the photos of their replay; requests for models. Generated, and as tables.

May import `datasets` and what that may import.
"""
