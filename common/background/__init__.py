"""Work that no request waits for: one thread with delayed jobs, and futures that are turned into others.

May import the root of `nearsight.common` only.
"""
