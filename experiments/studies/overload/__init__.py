"""Overload: failures under too many requests, and recovery afterwards; in none of the papers.

May import twin, rig, the studies of chapter 6, and what these may import.
"""
