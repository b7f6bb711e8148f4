"""Devices that share: presence, routing, and the key-value store that they host (dissertation, chapter 5).

May import `common`, without OpenCV or FAISS: a process that only shares needs little memory. `PeerNode`
combines the packages.
"""
