"""Answers ZeroMQ's question whether a client may connect (ZAP, ZeroMQ RFC 27)."""

from __future__ import annotations

from collections.abc import Sequence

import zmq
from zmq.utils import z85

from nearsight.common.logging import get_logger
from nearsight.common.rpc.allow_list import AllowList
from nearsight.common.rpc.frames import has_message

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_DOMAIN = b"nearsight"
_VERSION = b"1.0"
_REMEMBERED_REFUSALS = 256


class ZapHandler:
    """The socket on which libzmq asks about each client, polled by the thread that owns the server's socket.

    Parameters
    ----------
    context : zmq.Context
        That of the server's socket: ZAP reaches no further.
    allowed : AllowList
        Who may connect.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], allowed: AllowList) -> None:
        self._allowed = allowed
        self._refused: set[str] = set()
        self._log = get_logger("rpc.zap")
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(ZAP_ENDPOINT)

    def fileno(self) -> int:
        """The descriptor to poll; edge-triggered, so `serve` after each wake-up."""
        return int(self._socket.getsockopt(zmq.FD))

    def serve(self) -> None:
        """Answer all questions that have arrived."""
        while has_message(self._socket):
            question = self._socket.recv_multipart(zmq.NOBLOCK)
            self._socket.send_multipart(self._answer(question))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _answer(self, question: Sequence[bytes]) -> list[bytes]:
        request_id = question[1] if len(question) > 1 else b""
        if len(question) != 7 or question[0] != _VERSION or question[5] != b"CURVE" or len(question[6]) != 32:
            return [_VERSION, request_id, b"400", b"CURVE only", b"", b""]
        key = z85.encode(question[6]).decode()
        self._allowed.refresh()
        name = self._allowed.name_of(key)
        address = question[3].decode("ascii", "replace")
        if name is None:
            self._log_refusal(key, address)
            return [_VERSION, request_id, b"400", b"unknown key", b"", b""]
        self._refused.discard(key)
        self._log.debug("client accepted", address=address, client=name)
        return [_VERSION, request_id, b"200", b"OK", key.encode(), b""]

    def _log_refusal(self, key: str, address: str) -> None:
        """A person must hear of it, but not each time: strangers nearby ask again and again."""
        log = self._log.debug
        if key not in self._refused and len(self._refused) < _REMEMBERED_REFUSALS:
            self._refused.add(key)
            log = self._log.warning
        log(
            "client refused: its key is not allowed",
            address=address,
            public_key=key,
            advice="`nearsight keys allow` lets it in",
        )
