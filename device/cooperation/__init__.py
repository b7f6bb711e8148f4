"""Devices that share the models that they fetched and the steps that they saw (dissertation, 5.1 and 5.4.4).

May import `peers`, the device's models, adaptation and predictions, and `common`; it is used by
`ModelProviders`.
"""
