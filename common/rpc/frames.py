"""Frames in and out of a ZeroMQ socket, copied where that is cheaper than not to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import zmq

from nearsight.common.rpc.envelope import Buffer, size_of

COPY_BELOW_BYTES = 65536
"""Sending without a copy costs a hand-over to pyzmq's collector thread: more than copying 64 KiB."""


@dataclass(frozen=True, slots=True)
class Received:
    """One message; blobs stay in ZeroMQ's memory, which the views keep alive."""

    frames: list[Buffer]
    user_id: str | None


def send_message(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """Send a message or nothing of it, without waiting.

    Raises
    ------
    zmq.Again
        If there is no room for it or, for a client, no connection.
    """
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        flags = zmq.NOBLOCK if index == last else zmq.NOBLOCK | zmq.SNDMORE
        socket.send(frame, flags, copy=size_of((frame,)) < COPY_BELOW_BYTES)


def receive_message(socket: zmq.Socket[bytes], *, with_metadata: bool = False) -> Received:
    """Receive a message without waiting.

    Parameters
    ----------
    socket : zmq.Socket
        A ROUTER or DEALER.
    with_metadata : bool
        Ask for the identity that ZAP gave to the peer.

    Raises
    ------
    zmq.Again
        If none has arrived.
    """
    first = socket.recv(zmq.NOBLOCK, copy=False)
    user_id = _user_id(first) if with_metadata else None
    frames: list[Buffer] = [first.buffer]
    more = first.more
    while more:
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        frames.append(frame.buffer)
        more = frame.more
    return Received(frames, user_id)


def _user_id(frame: zmq.Frame) -> str | None:
    try:
        value = frame.get("User-Id")
    except zmq.ZMQError:
        return None
    return str(value) or None
