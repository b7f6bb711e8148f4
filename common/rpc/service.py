"""Interface that a daemon implements: services with one method per rpc, and the context of a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, NamedTuple

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.rpc.allow_list import LOCAL, Access, Caller
from nearsight.common.rpc.envelope import Buffer, Hop, clamp_s
from nearsight.protos import rpc_pb2


class Service:
    """Base of the services of a daemon.

    A subclass names its descriptor. For each rpc it has a method in snake_case that takes the request and a
    `CallContext` and returns the response, or a ``Future`` of it. With a future, the worker is free for other
    calls; the answer is sent when the future completes, or DEADLINE_EXCEEDED at the deadline. Errors of
    `nearsight.common.errors` are sent to the caller, all others become INTERNAL.
    """

    descriptor: ClassVar[ServiceDescriptor]
    """From the generated code, e.g. ``recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]``."""
    own_worker: ClassVar[bool] = False
    """Whether the service has its own queue and worker, so that it answers while all other workers are busy;
    for cheap calls that must not wait behind photos."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time at which the caller stops waiting for an answer.

    Requests carry the *time left*, because the clocks of two machines may differ. Each hop computes its own
    deadline from the time left when the request arrives.
    """

    at_s: float
    """Time of the deadline, in seconds of ``clock.monotonic()``."""
    clock: Clock = field(default=SYSTEM_CLOCK, compare=False, repr=False)
    """Source of the current time."""

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM_CLOCK) -> Deadline:
        """The deadline ``seconds`` from now; see `clamp_s`."""
        return cls(clock.monotonic() + clamp_s(seconds), clock)

    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at_s - self.clock.monotonic())

    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.clock.monotonic() >= self.at_s


@dataclass(slots=True)
class CallContext:
    """Facts about a call for its handler, and what the handler adds to the answer."""

    deadline: Deadline
    """Time at which the caller stops waiting; the remaining time is passed to the next tier."""
    client_id: str = ""
    """Id that the client states."""
    catalogue: str = ""
    """Catalogue of the call; empty if the method has none."""
    names_catalogue: bool = True
    """Whether the call itself names it; else it is the only one that the caller may use, or empty."""
    trace_id: str = ""
    """Identifies the request in all tiers and logs; pass it on."""
    caller: Caller = LOCAL
    """Owner of the key that the peer proved to own, and its rights; `LOCAL` without CURVE."""
    blobs: Sequence[memoryview] = ()
    """The request's blobs, read-only."""
    queue_ms: float = 0.0
    """Wait of the request for a worker."""
    stopping: Callable[[], bool] = bool
    """Whether the server is about to stop, or the caller's key was removed or has lost a right."""
    response_blobs: list[Buffer] = field(default_factory=list)
    """Blobs to send with the response. They must not change any more."""
    hops: list[Hop] = field(default_factory=list)
    """Timings of other tiers that were called for this answer; the server appends its own."""
    next_tier_ms: float = 0.0
    """Time spent waiting for the next tier, which does not count as work of this tier."""

    def named_catalogue(self) -> str:
        """The catalogue of the call, for a method that removes it.

        Raises
        ------
        InvalidArgument
            If the call does not name it, even if the caller may use only one.
        """
        if not (self.names_catalogue and self.catalogue):
            raise InvalidArgument("no catalogue was named", advice="name the one that is to be removed")
        return self.catalogue

    def cancelled(self) -> bool:
        """Whether the answer is no longer needed; long-running handlers check it regularly."""
        return self.deadline.expired() or self.stopping()


Handler = Callable[[Message, CallContext], Message | Future[Message]]


def python_name(method: MethodDescriptor) -> str:
    """The Python name of an rpc: ``GetObjectModels`` is ``get_object_models``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", method.name).lower()


@dataclass(frozen=True, slots=True)
class RpcMethod:
    """Properties of a method, read once from its descriptor, which creates new objects at each access."""

    full_name: str
    service: str
    name: str
    request_class: type[Message]
    response_class: type[Message]
    idempotent: bool
    """Whether it may be executed twice: its .proto file sets an idempotency level."""
    access: Access
    """How it uses the catalogue of the call."""


@cache
def rpc_method(method: MethodDescriptor) -> RpcMethod:
    """Read the descriptor of a method."""
    options = method.GetOptions()
    return RpcMethod(
        method.full_name,
        method.containing_service.full_name,
        method.name,
        GetMessageClass(method.input_type),
        GetMessageClass(method.output_type),
        bool(options.idempotency_level != options.IDEMPOTENCY_UNKNOWN),
        Access(options.Extensions[rpc_pb2.access]),  # type: ignore[index]  # incomplete stub
    )


class Endpoint(NamedTuple):
    """A method of a server, and the function of the service that answers it."""

    method: RpcMethod
    handler: Handler


def endpoints_of(services: Iterable[Service]) -> dict[tuple[str, str], Endpoint]:
    """All rpcs of a server by service and method name.

    Raises
    ------
    TypeError
        If a service lacks a handler for one of its rpcs, or two services have the same name. These bugs are
        detected when the server is built, not at the first call.
    """
    endpoints: dict[tuple[str, str], Endpoint] = {}
    for service in services:
        for descriptor in service.descriptor.methods:
            method, handler = rpc_method(descriptor), getattr(service, python_name(descriptor), None)
            if not callable(handler):
                raise TypeError(
                    f"{type(service).__name__} lacks {python_name(descriptor)}(), "
                    f"the handler of {method.full_name}"
                )
            if (method.service, method.name) in endpoints:
                raise TypeError(f"two services are called {method.service}")
            endpoints[method.service, method.name] = Endpoint(method, handler)
    return endpoints


def no_such_method(endpoints: Collection[tuple[str, str]], service: str, method: str) -> NotFound:
    """The error for an unknown service or method; its advice lists the known ones."""
    services = list(dict.fromkeys(name for name, _ in endpoints))
    if service not in services:
        return NotFound(
            f"no service {service!r} here", advice=f"this server offers {', '.join(services) or 'none'}"
        )
    methods = [one for name, one in endpoints if name == service]
    return NotFound(f"{service} has no method {method!r}", advice=f"it has {', '.join(methods)}")
