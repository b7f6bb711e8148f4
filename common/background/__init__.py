"""Work that no request waits for: one thread with delayed jobs, futures turned into others, progress.

May import the root of `nearsight.common` only.
"""
