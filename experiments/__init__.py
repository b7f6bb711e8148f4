"""Experiments: the papers measured anew, and what that takes: data, machines, sessions, a report.

May import every tier. The rooms import each other in one direction: see `tests/test_architecture.py`.
"""
