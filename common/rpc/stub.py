"""The methods of a remote service, made from its descriptor."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.service import python_name

if TYPE_CHECKING:
    from nearsight.common.rpc.client import Channel, Reply


class Method:
    """One remote method: call it and wait, or begin it with `future`."""

    def __init__(self, channel: Channel, descriptor: MethodDescriptor) -> None:
        self._channel = channel
        self._descriptor = descriptor

    def __call__(
        self,
        request: Message,
        *,
        timeout_s: float,
        blobs: Sequence[Buffer] = (),
        catalogue: str = "",
        trace_id: str = "",
        client_id: str = "",
    ) -> Reply:
        """Call and wait for the answer; see `Channel.ask`."""
        return self._channel.ask(
            self._descriptor,
            request,
            timeout_s=timeout_s,
            blobs=blobs,
            catalogue=catalogue,
            trace_id=trace_id,
            client_id=client_id,
        )

    def future(
        self,
        request: Message,
        *,
        timeout_s: float,
        blobs: Sequence[Buffer] = (),
        catalogue: str = "",
        trace_id: str = "",
        client_id: str = "",
    ) -> Future[Reply]:
        """Begin a call; see `Channel.call`."""
        return self._channel.call(
            self._descriptor,
            request,
            timeout_s=timeout_s,
            blobs=blobs,
            catalogue=catalogue,
            trace_id=trace_id,
            client_id=client_id,
        )


class Stub:
    """A remote service: one method in snake_case per rpc.

    Parameters
    ----------
    channel : Channel
        To the server.
    service : ServiceDescriptor
        From the generated code, e.g. ``health_pb2.DESCRIPTOR.services_by_name["Health"]``.

    Examples
    --------
    ``Stub(channel, descriptor).check(HealthRequest(), timeout_s=1.0).message.ready``
    """

    def __init__(self, channel: Channel, service: ServiceDescriptor) -> None:
        self._service_name = service.full_name
        self._methods = {python_name(method): Method(channel, method) for method in service.methods}

    def __getattr__(self, name: str) -> Method:
        try:
            return self.__dict__["_methods"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(f"{self.__dict__.get('_service_name')} has no method {name}()") from None
