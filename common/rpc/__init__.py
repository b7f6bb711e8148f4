"""Remote calls: protobuf services over ZeroMQ with deadlines, bounded queues, status codes and CURVE."""
