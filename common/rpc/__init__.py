"""Remote calls: protobuf services over ZeroMQ with deadlines, bounded queues, status codes and CURVE.

May import `background` and, for its commands, `command_line`.
"""
