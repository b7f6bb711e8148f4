"""What a daemon implements: services, one method per rpc of the .proto file, and the context of a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import ClassVar

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import NotFound
from nearsight.common.rpc.allow_list import LOCAL, Access, Caller
from nearsight.common.rpc.envelope import Buffer, Hop, clamp_s
from nearsight.protos import rpc_pb2


class Service:
    """Base of the services of a daemon.

    A subclass names its descriptor and has, for each rpc, a method in snake_case that takes the request and
    a `CallContext` and returns the response, or a ``Future`` of it: then the worker is free for other calls
    and the answer is sent when the future completes, or DEADLINE_EXCEEDED at the deadline. Errors of
    `nearsight.common.errors` travel to the caller, all others become INTERNAL.
    """

    descriptor: ClassVar[ServiceDescriptor]
    """From the generated code, e.g. ``recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]``."""
    own_worker: ClassVar[bool] = False
    """The service has a queue and a worker of its own, so that it answers while all others are busy: for what
    is cheap and must not wait behind photos."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment after which nobody waits for an answer any more.

    Deadlines travel on the wire as *time left*, since the clocks of two machines need not agree. Each hop
    makes its own deadline of what is left when the request arrives.
    """

    at_s: float
    """The moment, in seconds of ``clock.monotonic()``."""
    clock: Clock = field(default=SYSTEM_CLOCK, compare=False, repr=False)
    """Where the time is read."""

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        """The deadline ``seconds`` from now; see `clamp_s`."""
        return cls(clock.monotonic() + clamp_s(seconds), clock)

    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at_s - self.clock.monotonic())

    def expired(self) -> bool:
        """Whether the moment has passed."""
        return self.clock.monotonic() >= self.at_s


@dataclass(slots=True)
class CallContext:
    """What a handler knows about its call, and what it adds to the answer."""

    deadline: Deadline
    """When the caller stops waiting; what is left of it goes to the next tier."""
    client_id: str = ""
    """Who asks, as it calls itself."""
    catalogue: str = ""
    """What the call is about; empty where a method has none."""
    trace_id: str = ""
    """Follows the request through tiers and logs; pass it on."""
    peer_key: str | None = None
    """The public key (Z85) that the peer proved to own; None without CURVE."""
    caller: Caller = LOCAL
    """Whose key that is, and what it may do; `LOCAL` without CURVE."""
    blobs: Sequence[memoryview] = ()
    """The request's blobs, read-only."""
    queue_ms: float = 0.0
    """How long the request waited for a worker."""
    stopping: Callable[[], bool] = bool
    """Whether the server is about to stop, or the caller's key was taken out of the list."""
    response_blobs: list[Buffer] = field(default_factory=list)
    """Blobs to send with the response. They must not change any more."""
    hops: list[Hop] = field(default_factory=list)
    """Timings of tiers that were asked for this answer; the server adds its own behind them."""
    next_tier_ms: float = 0.0
    """Time spent waiting for the next tier, which is not this tier's work."""

    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more; long work looks at it now and then."""
        return self.deadline.expired() or self.stopping()


Handler = Callable[[Message, CallContext], Message | Future[Message]]


def python_name(method: MethodDescriptor) -> str:
    """The Python name of an rpc: ``GetObjectModels`` is ``get_object_models``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", method.name).lower()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One rpc of one service and the function that answers it."""

    service_name: str
    method_name: str
    full_name: str
    """As in the .proto file. Read once: a descriptor builds Python objects at each question."""
    request_class: type[Message]
    response_class: type[Message]
    """What the handler takes and returns."""
    handler: Handler
    """The method of the service."""
    access: Access
    """What it does with the catalogue of the call."""

    @classmethod
    def of(cls, service: Service, method: MethodDescriptor) -> Endpoint:
        """The endpoint of one rpc; TypeError if the service has no handler for it."""
        handler = getattr(service, python_name(method), None)
        if not callable(handler):
            raise TypeError(
                f"{type(service).__name__} lacks {python_name(method)}(), the handler of {method.full_name}"
            )
        return cls(
            method.containing_service.full_name,
            method.name,
            method.full_name,
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            handler,
            Access(method.GetOptions().Extensions[rpc_pb2.access]),  # type: ignore[index]  # a vague stub
        )


def endpoints_of(services: Iterable[Service]) -> dict[tuple[str, str], Endpoint]:
    """All rpcs of a server by service and method name.

    Raises
    ------
    TypeError
        If a service lacks a handler for one of its rpcs, or two services share a name: bugs, found when the
        server is built rather than by the first call.
    """
    endpoints: dict[tuple[str, str], Endpoint] = {}
    for service in services:
        for method in service.descriptor.methods:
            name = (service.descriptor.full_name, method.name)
            if name in endpoints:
                raise TypeError(f"two services are called {name[0]}")
            endpoints[name] = Endpoint.of(service, method)
    return endpoints


def no_such_method(endpoints: Collection[tuple[str, str]], service: str, method: str) -> NotFound:
    """The error of a request for what a server does not have; it says what there is."""
    services = list(dict.fromkeys(name for name, _ in endpoints))
    if service not in services:
        return NotFound(
            f"no service {service!r} here", advice=f"this server offers {', '.join(services) or 'none'}"
        )
    methods = [one for name, one in endpoints if name == service]
    return NotFound(f"{service} has no method {method!r}", advice=f"it has {', '.join(methods)}")
