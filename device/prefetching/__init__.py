"""What the device holds ready: it learns what may come next, decides, fetches and swaps (figure 4.5).

`controller` is the front door; all of it but the swap runs in one background thread.
May import: `common`, `protos`, and the settings of `device`.
"""
