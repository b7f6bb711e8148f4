"""What the papers' tables and figures show, measured anew; studies of our own beside them.

May import everything below: twin, testbed, rig, framework.
"""
