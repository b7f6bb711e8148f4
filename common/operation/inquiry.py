"""One question to several daemons at the same time: ``status``, ``explain`` and ``peers`` ask it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from nearsight.common.errors import InvalidMessage, NearsightError
from nearsight.common.rpc.client import Channel, Reply
from nearsight.common.rpc.security import ClientSecurity

M = TypeVar("M", bound=Message)
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Inquiry(Generic[M, A]):
    """What is asked, and what an answer means.

    Attributes
    ----------
    client_id : str
        Who asks.
    method : MethodDescriptor
        The rpc.
    request : Message
        Its request.
    response : type of Message
        Its response.
    read : callable
        Makes a value of a response; may raise `NearsightError`.
    """

    client_id: str
    method: MethodDescriptor
    request: Message
    response: type[M]
    read: Callable[[M], A]


def ask_all(
    endpoints: Sequence[str],
    inquiry: Inquiry[M, A],
    *,
    timeout_s: float,
    security: ClientSecurity | None = None,
) -> tuple[A | NearsightError, ...]:
    """Ask all daemons at the same time; takes ``timeout_s`` at most.

    Parameters
    ----------
    endpoints : sequence of str
        ``tcp://host:port`` each.
    inquiry : Inquiry
        The question.
    timeout_s : float
        How long to wait for an answer.
    security : ClientSecurity, optional
        The keys, if the daemons use encryption.

    Returns
    -------
    tuple
        One answer per endpoint, or why there was none.
    """
    with ExitStack() as open_channels:
        pending = []
        for endpoint in endpoints:
            channel = open_channels.enter_context(
                Channel(endpoint, client_id=inquiry.client_id, security=security)
            )
            pending.append(channel.call(inquiry.method, inquiry.request, timeout_s=timeout_s))
        answers: list[A | NearsightError] = []
        for endpoint, reply in zip(endpoints, pending, strict=True):
            answer = _answer(endpoint, reply, inquiry)
            answers.append(answer)
        return tuple(answers)


def _answer(endpoint: str, reply: Future[Reply], inquiry: Inquiry[M, A]) -> A | NearsightError:
    try:
        message = reply.result().message
        if not isinstance(message, inquiry.response):
            raise InvalidMessage(f"{endpoint} answered with a {message.DESCRIPTOR.name}")
        return inquiry.read(message)
    except NearsightError as error:
        return error
