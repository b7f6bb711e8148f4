"""Measurements of the papers' tables and figures, and studies that go beyond the papers.

May import all lower packages: twin, testbed, rig, framework.
"""
