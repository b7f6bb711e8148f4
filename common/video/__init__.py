"""Continuous vision: finds the parts of a frame that earlier frames contain, so that networks can reuse them.

Pure objects. Inputs are frames and masks of blocks; results are offsets, rectangles and pixels.
May import: the root of `common`. Source: DeepCache.
"""
