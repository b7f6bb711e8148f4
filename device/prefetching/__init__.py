"""Prefetching of object models: the device predicts, decides, fetches and swaps its cache (figure 4.5).

Start with `controller`. Everything except the swap runs in one background thread. May import: `common`,
`protos`, and the settings of `device`.
"""
