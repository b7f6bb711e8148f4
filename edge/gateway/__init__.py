"""The gateway: a daemon beside an edge that serves HTTP, WebSockets and a page for browsers.

The gateway is an ordinary client of its edge. May import: `common`, `protos`, libraries of the extra `web`.
"""
