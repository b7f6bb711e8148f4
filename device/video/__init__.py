"""Recognition in live video, and networks that run over its frames.

`stream` is the entry point: it takes the frames of a camera and returns an answer for each. `live_view`
decides which frames are sent as requests, and which answer is valid until the next one, using `gate` and
`tracking`. These three modules are pure. Requests are processed as any others. `session` runs a convolutional
network over frames and recomputes only what changed; `heat_map` visualises it. May import `common` and the
device's `callback_thread`, `drawing`, `engine`, `forks`, `image_sources`, `query` and `recognition`.
"""
