"""Continuous vision: what of a video's frame was seen before, so that a network need not compute it again.

Pure objects: frames and maps of blocks go in, offsets, rectangles and pixels come out.
May import: the root of `common`. Source: DeepCache.
"""
