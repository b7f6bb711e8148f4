"""Remote calls: protobuf services over ZeroMQ with deadlines, bounded queues, status codes and CURVE.

May import the root of `nearsight.common` and, for its commands, `command_line`.
"""
