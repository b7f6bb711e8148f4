"""Visitor traces: generated walks through a museum, and CSV in and out."""
