"""The device: the SDK behind ``recognize(image, callback)`` and the daemon that hosts it."""
