"""Frames in and out of a ZeroMQ socket, copied where that is cheaper than not to.

These functions run several times per call: flags are plain integers, since pyzmq's enums cost more than the
sending, and the socket is asked before it is read, since an exception costs more than the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import zmq
from zmq import zmq_poll

from nearsight.common.rpc.envelope import Buffer

COPY_BELOW_BYTES = 65536
"""Sending without a copy costs a hand-over to pyzmq's collector thread: more than copying 64 KiB."""

_POLLIN = int(zmq.POLLIN)
_NOBLOCK = int(zmq.NOBLOCK)
_NOBLOCK_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)


class Received(NamedTuple):
    """One message; blobs stay in ZeroMQ's memory, which the views keep alive."""

    frames: list[Buffer]
    user_id: str | None


def has_message(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message can be received now."""
    return bool(zmq_poll([(socket, _POLLIN)], 0))


def send_message(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """Send a message or nothing of it, without waiting. Views must be flat bytes.

    Raises
    ------
    zmq.Again
        If there is no room for it or, for a client, no connection.
    """
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        flags = _NOBLOCK if index == last else _NOBLOCK_MORE
        socket.send(frame, flags, len(frame) < COPY_BELOW_BYTES)


def receive_message(socket: zmq.Socket[bytes], *, with_metadata: bool = False) -> Received | None:
    """Receive a message without waiting; None if there is none.

    Parameters
    ----------
    socket : zmq.Socket
        A ROUTER or DEALER.
    with_metadata : bool
        Ask for the identity that ZAP gave to the peer.
    """
    try:
        frame = socket.recv(_NOBLOCK, False)
    except zmq.Again:
        return None
    user_id = _user_id(frame) if with_metadata else None
    frames: list[Buffer] = [frame.bytes]
    while frame.more:
        frame = socket.recv(_NOBLOCK, False)
        frames.append(frame.buffer)
    return Received(frames, user_id)


def _user_id(frame: zmq.Frame) -> str | None:
    try:
        value = frame.get("User-Id")
    except zmq.ZMQError:
        return None
    return str(value) or None
