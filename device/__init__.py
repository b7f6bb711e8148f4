"""The device: the SDK with ``recognize(image, callback)``, and the daemon that runs it."""
