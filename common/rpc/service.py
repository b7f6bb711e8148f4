"""What a daemon implements: services, one method per rpc of the .proto file, and the context of a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import ClassVar

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from nearsight.common.rpc.deadline import Deadline
from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.hops import Hop
from nearsight.protos import rpc_pb2


class Service:
    """Base of the services of a daemon.

    A subclass names its descriptor and has, for each rpc, a method in snake_case that takes the request and
    a `CallContext` and returns the response, or a ``Future`` of it: then the worker is free for other calls
    and the answer is sent when the future completes, or DEADLINE_EXCEEDED at the deadline. Errors of
    `nearsight.common.errors` travel to the caller, all others become INTERNAL.

    Attributes
    ----------
    descriptor : ServiceDescriptor
        From the generated code, e.g. ``recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]``.
    own_worker : bool
        The service has a worker of its own, so that it answers while all others are busy. For health checks.
    """

    descriptor: ClassVar[ServiceDescriptor]
    own_worker: ClassVar[bool] = False


@dataclass(slots=True)
class CallContext:
    """What a handler knows about its call, and what it adds to the answer.

    Parameters
    ----------
    deadline : Deadline
        When the caller stops waiting; what is left of it goes to the next tier.
    client_id : str
        Who asks, as it calls itself.
    catalogue : str
        What the call is about; empty where a method has none.
    trace_id : str
        Follows the request through tiers and logs; pass it on.
    peer_key : str or None
        The public key (Z85) that the peer proved to own; None without CURVE.
    blobs : sequence of memoryview
        The request's blobs, read-only.
    queue_ms : float
        How long the request waited for a worker.
    stopping : callable
        Whether the server is about to stop.
    response_blobs : list of buffers
        Blobs to send with the response. They must not change any more.
    hops : list of Hop
        Timings of tiers that were asked for this answer; the server adds its own behind them.
    next_tier_ms : float
        Time spent waiting for the next tier, which is not this tier's work.
    """

    deadline: Deadline
    client_id: str = ""
    catalogue: str = ""
    trace_id: str = ""
    peer_key: str | None = None
    blobs: Sequence[memoryview] = ()
    queue_ms: float = 0.0
    stopping: Callable[[], bool] = bool
    response_blobs: list[Buffer] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)
    next_tier_ms: float = 0.0

    def add_next_tier_ms(self, milliseconds: float) -> None:
        """Count time that passed while the next tier worked."""
        self.next_tier_ms += milliseconds

    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more; long work looks at it now and then."""
        return self.deadline.expired() or self.stopping()


Handler = Callable[[Message, CallContext], Message | Future[Message]]


def python_name(method: MethodDescriptor) -> str:
    """The Python name of an rpc: ``GetObjectModels`` is ``get_object_models``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", method.name).lower()


def is_idempotent(method: MethodDescriptor) -> bool:
    """Whether the .proto file says that a repeated call does no harm."""
    options = method.GetOptions()
    return bool(options.idempotency_level != options.IDEMPOTENCY_UNKNOWN)


def newest_wins(method: MethodDescriptor) -> bool:
    """Whether a newer request of a client may supersede its older ones that still wait."""
    return bool(method.GetOptions().Extensions[rpc_pb2.newest_wins])  # type: ignore[index]  # the stub is too vague
