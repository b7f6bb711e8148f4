"""Recognition in live video.

`stream` is the front door: the frames of a camera in, an answer for each out. `live_view` decides which
frames are asked for and what holds until the next answer, with `gate` and `tracking`; these three are pure.
Questions go through the ordinary flow of requests. May import `common` and the device's `recognition`.
"""
