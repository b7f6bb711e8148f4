"""Database files: recognised, opened, upgraded, copied, and changed only where a change would last.

May import the root of `nearsight.common` only.
"""
