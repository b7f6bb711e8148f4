"""One way to run a session: processes, links, warming, devices that replay, rows and their numbers.

May import the tiers, `traces`, `datasets`, `links`; neither twin, testbed nor studies.
"""
