"""Devices that share object models and counts of recognised objects (dissertation, 5.1 and 5.4.4).

May import `peers`, the device's models, adaptation and predictions, and `common`. Used by `LocalRecognition`.
"""
