"""Devices that share (Cachier dissertation, chapter 5): who is near, and the key-value store that they host.

Nothing in here imports OpenCV or FAISS, so that a process that only shares stays small.
"""
