"""Code that the commands of all tiers share: options, tables, progress bars and errors on a terminal.

May import the root of `nearsight.common` only.
"""
