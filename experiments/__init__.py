"""Experiments: reproduce the papers' results; data sets, machines, sessions and a report for them.

May import every tier. Its packages import each other in one direction: see `tests/test_architecture.py`.
"""
