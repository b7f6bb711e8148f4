"""The edge: an adaptive recognition cache between devices and cloud (Cachier dissertation, chapter 3).

Decisions are pure objects; `catalogue_cache` joins them, `service` and `daemon` add sockets and threads.
May import: `common`, `protos`.
"""
