"""The echo service: measures a link and the whole call path, with nothing behind it."""

from __future__ import annotations

from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos import echo_pb2


class EchoService(Service):
    """Gives back what it gets."""

    descriptor: ClassVar[ServiceDescriptor] = echo_pb2.DESCRIPTOR.services_by_name["Echo"]

    def echo(self, request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        """The text and the blobs of the request."""
        context.response_blobs.extend(context.blobs)
        return echo_pb2.EchoResponse(text=request.text)

    def echo_once(self, request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        """As `echo`; clients do not repeat it."""
        return self.echo(request, context)
