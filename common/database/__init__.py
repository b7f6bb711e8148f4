"""Database files: identified, opened, upgraded, copied, and changed only while changes are durable.

May import the root of `nearsight.common` only.
"""
