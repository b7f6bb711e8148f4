"""Recognition in live video, and networks over its frames.

`stream` is the front door: the frames of a camera in, an answer for each out. `live_view` decides which
frames are asked for and what holds until the next answer, with `gate` and `tracking`; these three are pure.
Questions go through the ordinary flow of requests. `session` runs a convolutional network over frames and
computes again only what changed; `heat_map` shows it. May import `common` and the device's `recognition`.
"""
