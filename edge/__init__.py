"""The edge: an adaptive recognition cache between devices and cloud (Cachier dissertation, chapter 3).

Decision objects have no sockets or threads. `catalogue_cache` combines them; `service` and `daemon` add
sockets and threads.
May import: `common`, `protos`.
"""
