"""Finds the handler of a request among the services of a server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from nearsight.common.errors import InvalidMessage, NotFound
from nearsight.common.rpc.service import Handler, Service, newest_wins, python_name


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One rpc of one service and the function that answers it."""

    method: MethodDescriptor
    request_class: type[Message]
    response_class: type[Message]
    handler: Handler
    newest_wins: bool
    own_worker: bool

    @property
    def service_name(self) -> str:
        """Fully qualified name of the service."""
        return str(self.method.containing_service.full_name)

    def parse(self, data: bytes) -> Message:
        """Read the request's message.

        Raises
        ------
        InvalidMessage
            If the bytes are no message of the method's type.
        """
        request = self.request_class()
        try:
            request.ParseFromString(data)
        except (DecodeError, UnicodeDecodeError) as error:
            raise InvalidMessage(f"the message is not a {self.method.input_type.full_name}") from error
        return request


class Dispatcher:
    """All rpcs of a server by service and method name.

    Raises
    ------
    TypeError
        If a service lacks a handler for one of its rpcs, or two services share a name: bugs, found when the
        server is built rather than by the first call.
    """

    def __init__(self, services: Iterable[Service]) -> None:
        self._services: dict[str, dict[str, Endpoint]] = {}
        for service in services:
            name = service.descriptor.full_name
            if name in self._services:
                raise TypeError(f"two services are called {name}")
            self._services[name] = {m.name: _endpoint(service, m) for m in service.descriptor.methods}

    @property
    def service_names(self) -> tuple[str, ...]:
        """What this server offers."""
        return tuple(self._services)

    @property
    def wants_own_worker(self) -> bool:
        """Whether a service asked for a worker of its own."""
        return any(e.own_worker for methods in self._services.values() for e in methods.values())

    def find(self, service: str, method: str) -> Endpoint:
        """The endpoint of a request.

        Raises
        ------
        NotFound
            If there is none; the message says what there is.
        """
        methods = self._services.get(service)
        if methods is None:
            offered = ", ".join(self._services) or "none"
            raise NotFound(f"no service {service!r} here", advice=f"this server offers {offered}")
        endpoint = methods.get(method)
        if endpoint is None:
            raise NotFound(f"{service} has no method {method!r}", advice=f"it has {', '.join(methods)}")
        return endpoint


def _endpoint(service: Service, method: MethodDescriptor) -> Endpoint:
    handler = getattr(service, python_name(method), None)
    if not callable(handler):
        raise TypeError(
            f"{type(service).__name__} lacks {python_name(method)}(), the handler of {method.full_name}"
        )
    return Endpoint(
        method,
        GetMessageClass(method.input_type),
        GetMessageClass(method.output_type),
        handler,
        newest_wins(method),
        service.own_worker,
    )
