"""Work outside of requests: one thread with delayed jobs, chained futures, progress reports.

May import the root of `nearsight.common` only.
"""
