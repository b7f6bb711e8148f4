"""Peers that speak ZeroMQ's wire protocol byte by byte, to send data that no library sends."""

import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nacl import bindings as sodium
from zmq.utils import z85

from nearsight.common.rpc.security import KeyPair
from support.rpc import request_frames

READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"

_SO_ATTACH_FILTER = 26  # of Linux


def greeting(mechanism: bytes = b"NULL") -> bytes:
    return (b"\xff" + 8 * b"\x00" + b"\x7f\x03\x01" + mechanism.ljust(20, b"\x00")).ljust(64, b"\x00")


def frame(body: bytes, flags: int = 0) -> bytes:
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | 2]) + struct.pack(">Q", len(body)) + body


def frame_header(size_bytes: int) -> bytes:
    """The header of a frame of this size."""
    return b"\x02" + struct.pack(">Q", size_bytes)


class RawPeer:
    """A client without keys that sends any data."""

    def __init__(self, endpoint: str, *, receive_buffer: int = 0) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect((host, int(port)))

    def greet(self) -> None:
        self.socket.sendall(greeting() + frame(READY, 4))
        self.read(64)
        self.frame()

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            received = self.socket.recv(size - len(data))
            if not received:
                raise ConnectionResetError
            data += received
        return data

    def frame(self) -> bytes:
        """Read the next frame, without its header."""
        flags, size = self.read(2)
        if flags & 2:
            size = int.from_bytes(bytes([size]) + self.read(7), "big")
        return self.read(size)

    def request(self, text: str = "", **header: object) -> None:
        (body,) = request_frames(text, **header)  # type: ignore[arg-type]
        self.socket.sendall(frame(bytes(body)))

    def send(self, data: bytes) -> bool:
        """Send data; return whether all of it was accepted."""
        with suppress(OSError):
            self.socket.sendall(data)
            return True
        return False

    def is_cut(self) -> bool:
        """Whether the server has closed the connection; discards data that it sent before."""
        self.socket.settimeout(0.0)
        try:
            while self.socket.recv(65536):
                pass
        except BlockingIOError:
            return False
        except OSError:
            pass
        finally:
            self.socket.settimeout(60)
        return True

    def close(self) -> None:
        self.socket.close()


class RawServer(RawPeer):
    """The server of one connection, without keys."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"

    def accept(self) -> None:
        with self.listener:
            self.socket, _ = self.listener.accept()
        self.socket.settimeout(60)

    def greet(self) -> None:
        """Accept the client and perform the handshake."""
        self.accept()
        super().greet()

    def stop_responding(self) -> None:
        """Discard all data that arrives from now on, and acknowledge nothing, as a failed machine."""
        # A filter that keeps 0 bytes.
        nothing = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
        program = struct.pack("HP", 1, ctypes.addressof(nothing))
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


@contextmanager
def raw_peers(endpoint: str, count: int, *, greet: bool = True) -> Iterator[list[RawPeer]]:
    peers: list[RawPeer] = []
    try:
        for _ in range(count):
            peers.append(RawPeer(endpoint))
            if greet:
                peers[-1].greet()
        yield peers
    finally:
        for peer in peers:
            peer.close()


class CurveClient:
    """The client's side of CURVE, whose messages a test can falsify. Source: CurveZMQ (ZeroMQ RFC 26)."""

    def __init__(self, own: KeyPair, server_public: str) -> None:
        self.public, self.secret = z85.decode(own.public), z85.decode(own.secret)
        self.server = z85.decode(server_public)
        self.short_public, self.short_secret = sodium.crypto_box_keypair()
        self.count = 0
        self.shared = b""

    def number(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(8, "big")

    def hello(self) -> bytes:
        number = self.number()
        box = sodium.crypto_box_easy(bytes(64), b"CurveZMQHELLO---" + number, self.server, self.short_secret)
        return b"\x05HELLO\x01\x00" + bytes(72) + self.short_public + number + box

    def initiate(self, welcome: bytes) -> bytes:
        nonce, box = welcome[8:24], welcome[24:]
        plain = sodium.crypto_box_open_easy(box, b"WELCOME-" + nonce, self.server, self.short_secret)
        self.server_short, cookie = plain[:32], plain[32:]
        vouch_nonce = bytes(16)
        vouch = sodium.crypto_box_easy(
            self.short_public + self.server, b"VOUCH---" + vouch_nonce, self.server_short, self.secret
        )
        self.shared = sodium.crypto_box_beforenm(self.server_short, self.short_secret)
        number = self.number()
        content = self.public + vouch_nonce + vouch + READY[6:]
        box = sodium.crypto_box_easy_afternm(content, b"CurveZMQINITIATE" + number, self.shared)
        return b"\x08INITIATE" + cookie + number + box

    def message(self, content: bytes, flags: int = 0) -> bytes:
        number = self.number()
        box = sodium.crypto_box_easy_afternm(
            bytes([flags]) + content, b"CurveZMQMESSAGEC" + number, self.shared
        )
        return b"\x07MESSAGE" + number + box

    def opened(self, body: bytes) -> tuple[int, bytes]:
        """Flags and content of a frame from the server."""
        plain = sodium.crypto_box_open_easy_afternm(body[16:], b"CurveZMQMESSAGES" + body[8:16], self.shared)
        return plain[0], plain[1:]
