"""One request to several daemons at the same time; used by ``status``, ``explain`` and ``peers``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, TypeVar

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.errors import NearsightError
from nearsight.common.rpc.client import Channel, Reply
from nearsight.common.rpc.security import ClientSecurity

CLIENT_ID = "nearsight-inquiry"
Securities = ClientSecurity | Sequence[ClientSecurity | None] | None
A = TypeVar("A")


def ask_all(
    endpoints: Sequence[str],
    method: MethodDescriptor,
    request: Message,
    read: Callable[[str, Any], A],
    failed: Callable[[str, NearsightError], A],
    *,
    timeout_s: float,
    security: Securities = None,
) -> tuple[A, ...]:
    """Call all daemons at the same time; takes ``timeout_s`` at most.

    Parameters
    ----------
    endpoints : sequence of str
        ``tcp://host:port`` each.
    method : MethodDescriptor
        The rpc.
    request : Message
        Its request.
    read, failed : callable
        Create the result from an endpoint and its response, or from an endpoint and the error. ``read`` may
        raise `NearsightError` itself.
    timeout_s : float
        Timeout of the answers.
    security : ClientSecurity, optional
        The keys, if the daemons use encryption: those of all, or one or None for each endpoint.
    """

    def value_of(endpoint: str, reply: Future[Reply]) -> A:
        try:
            return read(endpoint, reply.result().message)
        except NearsightError as error:
            return failed(endpoint, error)

    each = [security] * len(endpoints) if isinstance(security, ClientSecurity | None) else security
    with ExitStack() as stack:
        replies = []
        for endpoint, keys in zip(endpoints, each, strict=True):
            channel = stack.enter_context(Channel(endpoint, client_id=CLIENT_ID, security=keys))
            replies.append(channel.call(method, request, timeout_s=timeout_s))
        return tuple(map(value_of, endpoints, replies))
