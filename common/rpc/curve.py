"""CURVE, the security of ZeroMQ, on the server side: clients prove their keys and every frame is encrypted.

The cryptography is libsodium's, used through PyNaCl. This module adds the order of the messages and their
layout only. If any check of a client fails, its connection is closed without an answer. Only a client that
proved its key receives an error: if that key is not allowed, or has too many connections. Source: CurveZMQ
(ZeroMQ RFC 26).
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable

from nacl import bindings as sodium
from nacl._sodium import ffi, lib  # type: ignore[import-not-found]  # `bindings` copies each frame twice
from nacl.exceptions import CryptoError
from zmq.utils import z85

from nearsight.common.rpc.envelope import Buffer
from nearsight.common.rpc.zmtp import COMMAND, METADATA, MORE, Mechanism, ProtocolError, frame_header

_KEY, _COOKIE, _MAC, _VOUCH = 32, 96, 16, 80
_HELLO_BYTES = 200
_MESSAGE = b"\x07MESSAGE"
_BOX = len(_MESSAGE) + 8
_TO_CLIENT, _FROM_CLIENT = b"CurveZMQMESSAGES", b"CurveZMQMESSAGEC"
_COPY_BELOW_BYTES = 16384
_SEALED_COMMAND = 2
"""Flag inside an encrypted frame that marks a command; MORE is 1 there, too."""


class Curve(Mechanism):
    """The security of one connection.

    Parameters
    ----------
    public, secret : bytes
        Key pair of this server.
    admit : callable
        Takes the key (Z85) that a client proved to own; raises `Refused` if the client may not connect.
    """

    name = b"CURVE"
    overhead = _BOX + _MAC + 1

    def __init__(self, public: bytes, secret: bytes, admit: Callable[[str], None]) -> None:
        super().__init__()
        self._server_public, self._server_secret = public, secret
        self._admit = admit
        self._client = b""  # the client's public key for this connection
        self._secret = b""  # the secret key of this side for this connection
        self._cookie = b""
        self._shared = b""
        self._sent = 0  # frame numbers: each is used once, so that replayed frames are detected
        self._received = 0

    def opening(self) -> list[bytes]:
        """No commands: the client begins."""
        return []

    def advance(self, command: bytes) -> list[bytes]:
        """Handle HELLO, then INITIATE."""
        try:
            if not self._client:
                return [self._welcome(command)]
            return [self._ready(command)]
        except (CryptoError, ValueError) as error:
            raise ProtocolError("a client without this server's key, or an altered handshake") from error

    def seal(self, flags: int, content: Buffer) -> tuple[bytes, Buffer]:
        """Encrypt a copy of a frame in place."""
        self._sent += 1
        number = self._sent.to_bytes(8, "big")
        header = frame_header(0, self.overhead + len(content))
        sealed = _SEALED_COMMAND if flags & COMMAND else flags
        body = bytearray().join((_MESSAGE, number, bytes(_MAC), bytes((sealed,)), content))
        box = ffi.from_buffer(body) + _BOX
        lib.crypto_box_easy_afternm(box, box + _MAC, len(content) + 1, _TO_CLIENT + number, self._shared)
        return header, body

    def unseal(self, flags: int, body: Buffer) -> tuple[int, Buffer]:
        """Decrypt a frame in place."""
        # The outer flags are not authenticated; the valid flags are encrypted.
        if body[:8] != _MESSAGE or len(body) < self.overhead:
            raise ProtocolError("a frame that is not encrypted")
        if isinstance(body, bytes):
            body = bytearray(body)
        number = bytes(body[8:_BOX])
        self._count(number)
        box = ffi.from_buffer(body) + _BOX
        if lib.crypto_box_open_easy_afternm(
            box + _MAC, box, len(body) - _BOX, _FROM_CLIENT + number, self._shared
        ):
            raise ProtocolError("an altered frame")
        sealed, content = body[_BOX + _MAC], memoryview(body)[self.overhead :]
        flags = COMMAND if sealed & _SEALED_COMMAND else sealed & MORE
        return flags, content if len(content) > _COPY_BELOW_BYTES else bytes(content)

    def _welcome(self, hello: bytes) -> bytes:
        if len(hello) != _HELLO_BYTES or not hello.startswith(b"\x05HELLO\x01\x00"):
            raise ProtocolError("no HELLO of CURVE 1.0 after the greeting")
        client, number, box = hello[80:112], hello[112:120], hello[120:]
        shared = sodium.crypto_box_beforenm(client, self._server_secret)
        self._count(number)
        if sodium.crypto_box_open_easy_afternm(box, b"CurveZMQHELLO---" + number, shared) != bytes(64):
            raise ProtocolError("an altered HELLO")
        public, self._secret = sodium.crypto_box_keypair()
        # The protocol would allow a server without state, with its state in the cookie. This side stores the
        # state instead.
        self._client, self._cookie, nonce = client, os.urandom(_COOKIE), os.urandom(16)
        box = sodium.crypto_box_easy_afternm(public + self._cookie, b"WELCOME-" + nonce, shared)
        return b"\x07WELCOME" + nonce + box

    def _ready(self, initiate: bytes) -> bytes:
        cookie, number, box = initiate[9:105], initiate[105:113], initiate[113:]
        if not initiate.startswith(b"\x08INITIATE") or not hmac.compare_digest(cookie, self._cookie):
            raise ProtocolError("no INITIATE after the WELCOME")
        self._count(number)
        shared = sodium.crypto_box_beforenm(self._client, self._secret)
        plain = sodium.crypto_box_open_easy_afternm(box, b"CurveZMQINITIATE" + number, shared)
        key, nonce, vouch = plain[:_KEY], plain[_KEY : _KEY + 16], plain[_KEY + 16 : _KEY + 16 + _VOUCH]
        proof = sodium.crypto_box_open_easy_afternm(
            vouch, b"VOUCH---" + nonce, sodium.crypto_box_beforenm(key, self._secret)
        )
        if not hmac.compare_digest(proof, self._client + self._server_public):
            raise ProtocolError("a client that does not own its key")
        self.key = z85.encode(key).decode()
        self._admit(self.key)
        self._shared, self._secret, self.done = shared, b"", True
        self._sent = 1
        number = self._sent.to_bytes(8, "big")
        ready = sodium.crypto_box_easy_afternm(METADATA, b"CurveZMQREADY---" + number, shared)
        return b"\x05READY" + number + ready

    def _count(self, number: bytes) -> None:
        value = int.from_bytes(number, "big")
        if value <= self._received:
            raise ProtocolError("a repeated frame")
        self._received = value
