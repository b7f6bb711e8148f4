"""The gateway: a daemon beside an edge that serves HTTP, WebSockets and a page for browsers.

It asks its edge as any client does. May import: `common`, `protos`, and what the extra `web` brings.
"""
