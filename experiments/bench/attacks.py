"""Attacks on a daemon: what one hostile client can send, bounded in bytes, count and time.

Each attack is a function that runs in a process of its own. It says what it sent and how it was turned away.
ZMTP 3.1 is written by hand where libzmq would not send such a thing.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import zmq

from nearsight.common.errors import NearsightError
from nearsight.common.rpc.allow_list import allow_client, forbid_client
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.common.rpc.envelope import PROTOCOL
from nearsight.common.rpc.security import ClientSecurity, read_public_key, read_secret_key
from nearsight.protos import catalogue_pb2, health_pb2, recognition_pb2, rpc_pb2

SERVER, HONEST, HOSTILE = "server", "honest", "hostile"
"""Names of keys."""
ALLOWED = "allowed"
"""Folder of the keys that the daemon lets in."""
MIB = 2**20
_CATALOGUE = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]
_RECOGNITION = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]
_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
_TIMEOUT_S = 5.0
_STUCK_S = 3.0
"""A daemon that takes nothing for so long is sent no more."""
_CHUNK = MIB // 4

_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
_MORE, _LONG, _COMMAND = 1, 2, 4
_TCP_ESTABLISHED = 1


@dataclass(frozen=True, slots=True)
class Victim:
    """The daemon that is attacked, as its clients know it."""

    endpoint: str
    metrics: str
    """``host:port`` of its metrics."""
    catalogue: str
    objects: tuple[str, ...]
    """Ids of the catalogue."""
    photos: tuple[str, ...]
    """Files."""
    keys: Path | None
    """Folder of the keys; None: it serves without encryption."""
    seconds: float
    """How long the attack lasts, or stays when all is sent."""

    def security(self, name: str) -> ClientSecurity | None:
        """The keys of a client."""
        if self.keys is None:
            return None
        return ClientSecurity(self.keys / f"{name}.key_secret", self.keys / f"{SERVER}.key")

    @contextmanager
    def channel(self, name: str = HOSTILE) -> Iterator[Channel]:
        """A client of the SDK's kind."""
        with Channel(self.endpoint, client_id=name, security=self.security(name)) as channel:
            yield channel


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attacker saw."""

    sent: str
    refused: str
    """How it was turned away, or that it was not."""
    broken: str = ""
    """A law of this attack alone that does not hold."""
    figures: dict[str, float] = field(default_factory=dict)


Attack = Callable[[Victim], Outcome]


def ask(stub: Stub, victim: Victim, photo: bytes) -> Future[Reply]:
    """Begin to ask what a photo shows."""
    request = recognition_pb2.RecognizeRequest(image=recognition_pb2.ImageInput(size_bytes=len(photo)))
    future: Future[Reply] = stub.recognize.future(
        request, timeout_s=_TIMEOUT_S, blobs=[photo], catalogue=victim.catalogue
    )
    return future


# ---- below the messages: ZMTP by hand


def frame_bomb(victim: Victim) -> Outcome:
    """One message of millions of empty frames: two bytes each on the wire."""
    with _raw(victim) as peer:
        sent = _send(peer, bytes([_MORE, 0]) * (4 * MIB - 1) + bytes(2))
        return Outcome(f"{sent / 2e6:.1f} M empty frames, {sent / 1e6:.1f} MB", _fate([peer], victim))


def encrypted_frame_bomb(victim: Victim) -> Outcome:
    """The same by a client with an allowed key; encryption costs about 35 bytes a frame."""
    frames = 500_000
    with zmq.Context() as context, _dealer(victim, context) as peer:
        for _ in range(frames):
            peer.send(b"", zmq.SNDMORE)
        peer.send(b"")
        answered = peer.poll(int(victim.seconds * 1000))
        return Outcome(f"{frames / 1e6:.1f} M empty frames, CURVE", "answered" if answered else "no answer")


def endless_message(victim: Victim) -> Outcome:
    """A message whose every frame says that more follow."""
    frame = bytes([_MORE | _LONG]) + struct.pack(">Q", MIB) + bytes(MIB)
    sent = 0
    with _raw(victim) as peer:
        while sent < 1500 * len(frame) and (passed := _send(peer, frame)):
            sent += passed
        return Outcome(f"{sent / MIB:.0f} MiB of one message", _fate([peer], victim))


def unfinished_messages(victim: Victim) -> Outcome:
    """Connections that stop after 59 of the 60 MiB that they have announced."""
    data = bytes([_LONG]) + struct.pack(">Q", 60 * MIB) + bytes(59 * MIB)
    with ExitStack() as stack:
        peers = [stack.enter_context(_raw(victim)) for _ in range(25)]
        sent = sum(_send(peer, data) for peer in peers)
        return Outcome(f"59 of 60 MiB, 25 times ({sent / MIB:.0f} MiB)", _fate(peers, victim))


def unread_answers(victim: Victim) -> Outcome:
    """A client that asks for models again and again and never reads."""
    models = catalogue_pb2.GetObjectModelsRequest(object_ids=victim.objects)
    with victim.channel() as channel:
        one = Stub(channel, _CATALOGUE).get_object_models(
            models, timeout_s=_TIMEOUT_S, catalogue=victim.catalogue
        )
    asked, wanted = 0, 1 + 1700 * MIB // one.received_bytes
    with _raw(victim) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for asked in range(1, wanted + 1):
            header = rpc_pb2.RequestHeader(
                protocol=PROTOCOL,
                request_id=asked,
                service=_CATALOGUE.full_name,
                method="GetObjectModels",
                time_left_ms=60_000,
                client_id=HOSTILE,
                catalogue=victim.catalogue,
                message=models.SerializeToString(),
            ).SerializeToString()
            if not _send(peer, bytes([_LONG]) + struct.pack(">Q", len(header)) + header):
                break
            if not asked % 16:  # what waits in the queue is bounded, and answered as overloaded
                time.sleep(0.02)
        told = f"{asked} requests for {one.received_bytes / MIB:.1f} MiB of models, none read"
        return Outcome(told, _fate([peer], victim, reads=False))


# ---- connections


def idle_connections(victim: Victim) -> Outcome:
    """As many connections as the daemon has descriptors, all alive, all silent."""
    with zmq.Context() as context, ExitStack() as stack:
        context.max_sockets = 2048
        for _ in range(1100):
            stack.enter_context(_dealer(victim, context))
        time.sleep(victim.seconds)
    return Outcome("1,100 idle connections, 1,024 descriptors", "nobody")


def vanished_connections(victim: Victim) -> Outcome:
    """Clients whose machines are gone without a goodbye: their kernels' buffers are all that is left."""
    with ExitStack() as stack:
        peers = [stack.enter_context(_raw(victim)) for _ in range(300)]
        fate = _fate(peers, victim)
        kept = sum(not _closed(peer) for peer in peers)
    broken = f"{kept} dead connections kept for {victim.seconds:.0f} s" if kept else ""
    return Outcome("300 connections that answer nothing", fate, broken)


def metrics_flood(victim: Victim) -> Outcome:
    """Connections to the metrics that never finish their request."""
    parts = urlsplit(f"//{victim.metrics}")
    with ExitStack() as stack:
        peers = []
        for _ in range(500):
            with suppress(OSError):
                one = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1)
                peers.append(stack.enter_context(closing(one)))
                one.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        fate = _fate(peers, victim)
    try:
        with closing(http.client.HTTPConnection(victim.metrics, timeout=2)) as scraper:
            scraper.request("GET", "/metrics")
            scraper.getresponse().read()
        broken = ""
    except (OSError, http.client.HTTPException):
        broken = "no metrics afterwards"
    return Outcome(f"{len(peers)} unfinished HTTP requests", fate, broken)


# ---- whole messages


def greedy_client(victim: Victim) -> Outcome:
    """One client with 300 photos in flight."""
    photos = [Path(name).read_bytes() for name in victim.photos]
    return _in_flight(victim, 300, photos, "photos")


def costly_images(victim: Victim) -> Outcome:
    """Few small files that take seconds each to decode."""
    photo = many_scans_jpeg(7000, 7000, scans=86)
    return _in_flight(victim, 4, [photo], f"JPEGs of {len(photo) // 1000} KB with 86 scans")


def new_catalogues(victim: Victim) -> Outcome:
    """A client with the right to ask begins catalogues of its own."""
    image = Path(victim.photos[0]).read_bytes()
    counts: Counter[str] = Counter()
    end_s = time.monotonic() + victim.seconds
    with victim.channel() as channel:
        add = Stub(channel, _CATALOGUE).add_objects
        for number in range(150):
            request = catalogue_pb2.AddObjectsRequest(
                objects=[catalogue_pb2.NewObject(object_id="forged", images=1)], index_later=True
            )
            if time.monotonic() > end_s:
                break
            with _counted(counts):
                add(request, timeout_s=_TIMEOUT_S, blobs=[image], catalogue=f"forged-{number}")
    return Outcome(f"{counts.total()} new catalogues", _told(counts))


def revoked_key(victim: Victim) -> Outcome:
    """A client whose key is taken away, and given back, while it is connected."""
    if victim.keys is None:
        raise ValueError("a key can be revoked only where there are keys")
    allowed = victim.keys / ALLOWED
    broken = []
    with victim.channel() as channel:
        check = Stub(channel, _HEALTH).check
        check(health_pb2.HealthRequest(), timeout_s=_TIMEOUT_S)
        time.sleep(victim.seconds)
        forbid_client(HOSTILE, allowed)
        time.sleep(1.0)
        if _served(check):
            broken.append("served 1 s after its key was removed")
        allow_client(victim.keys / f"{HOSTILE}.key", allowed)
        time.sleep(1.0)
        if not _served(check):
            broken.append("refused 1 s after its key was allowed again")
    return Outcome(
        "calls after a removed, and an allowed key", "" if broken else "while forbidden", "; ".join(broken)
    )


def burst(victim: Victim) -> Outcome:
    """Two hundred clients at once, each with one photo; whoever is refused comes back after 0.1 s."""
    photos = [Path(name).read_bytes() for name in victim.photos]
    end_s = time.monotonic() + victim.seconds
    counts: Counter[str] = Counter()
    refusals_ms: list[float] = []

    def client(number: int, channel: Channel) -> None:
        stub = Stub(channel, _RECOGNITION)
        while time.monotonic() < end_s:
            photo = photos[number % len(photos)]
            started_s = time.monotonic()
            with _counted(counts) as answered:
                ask(stub, victim, photo).result()
            if not answered:
                refusals_ms.append((time.monotonic() - started_s) * 1e3)
                time.sleep(0.1)

    with ExitStack() as stack:
        channels = [
            stack.enter_context(
                Channel(victim.endpoint, client_id=f"guest-{n}", security=victim.security(HOSTILE))
            )
            for n in range(50)
        ]
        threads = [threading.Thread(target=client, args=(n, channels[n % 50])) for n in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    median_ms = sorted(refusals_ms)[len(refusals_ms) // 2] if refusals_ms else 0.0
    per_s = counts["answered"] / victim.seconds
    figures = {"refusal_median_ms": round(median_ms, 1), "answered_per_s": round(per_s, 2)}
    broken = f"refusals take {median_ms:.0f} ms" if median_ms > 100 else ""
    return Outcome(
        f"200 clients: {per_s:.1f} answers/s", f"{_told(counts)} in {median_ms:.0f} ms", broken, figures
    )


# ---- tools


def _in_flight(victim: Victim, most: int, photos: Sequence[bytes], what: str) -> Outcome:
    """Keep so many photos in flight."""
    end_s = time.monotonic() + victim.seconds
    free = threading.Semaphore(most)
    counts: Counter[str] = Counter()

    def ended(future: Future[Reply]) -> None:
        with _counted(counts):
            future.result()
        free.release()

    with victim.channel() as channel:
        stub = Stub(channel, _RECOGNITION)
        number = 0
        while free.acquire(timeout=max(0.0, end_s - time.monotonic())) and time.monotonic() < end_s:
            ask(stub, victim, photos[number % len(photos)]).add_done_callback(ended)
            number += 1
            time.sleep(0.001)  # not more than a thousand a second, however early they are refused
    return Outcome(f"{number} {what}, {most} in flight", _told(counts))


@contextmanager
def _counted(counts: Counter[str]) -> Iterator[list[bool]]:
    """Count how the call in the block ends."""
    try:
        yield (answered := [])
        counts["answered"] += 1
        answered.append(True)
    except NearsightError as error:
        counts[error.code.name] += 1


def _served(check: Callable[..., Reply]) -> bool:
    try:
        check(health_pb2.HealthRequest(), timeout_s=2.0)
    except NearsightError:
        return False
    return True


def _told(counts: Counter[str]) -> str:
    refused = {code: n for code, n in counts.items() if code != "answered"}
    return ", ".join(f"{n} {code}" for code, n in refused.items()) or "nobody"


@contextmanager
def _raw(victim: Victim) -> Iterator[socket.socket]:
    """A TCP connection after ZMTP's handshake without encryption."""
    parts = urlsplit(victim.endpoint)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=_TIMEOUT_S) as peer:
        with suppress(OSError):  # refused: the attack sees it when it sends
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
        if victim.keys is not None:
            pair = read_secret_key(victim.keys / f"{HOSTILE}.key_secret")
            peer.curve_publickey, peer.curve_secretkey = pair.public.encode(), pair.secret.encode()
            peer.curve_serverkey = read_public_key(victim.keys / f"{SERVER}.key").encode()
        peer.connect(victim.endpoint)
        yield peer


def _send(peer: socket.socket, data: bytes) -> int:
    """Send until all is out, the daemon closes, or takes nothing more for a while; bytes that went."""
    sent, view = 0, memoryview(data)
    peer.settimeout(_STUCK_S)
    with suppress(OSError):
        while sent < len(data):
            sent += peer.send(view[sent : sent + _CHUNK])
    return sent


def _fate(peers: Sequence[socket.socket], victim: Victim, *, reads: bool = True) -> str:
    """Stay for the seconds of the attack; what became of the connections."""
    started_s = time.monotonic()
    while time.monotonic() < started_s + victim.seconds and not all(map(_closed, peers)):
        time.sleep(0.02)
    cut = sum(map(_closed, peers))
    if cut:
        after = f" after {time.monotonic() - started_s:.1f} s" if cut == len(peers) else ""
        return f"{cut} of {len(peers)} cut off{after}"
    answered = reads and any(_readable(peer) for peer in peers)
    return "answered with an error" if answered else "nobody"


def _closed(peer: socket.socket) -> bool:
    """Whether the daemon has closed the connection, behind whatever it has sent."""
    return peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _TCP_ESTABLISHED


def _readable(peer: socket.socket) -> bool:
    peer.setblocking(False)
    with suppress(OSError):
        return bool(peer.recv(1, socket.MSG_PEEK))
    return False


def many_scans_jpeg(width: int, height: int, *, scans: int) -> bytes:
    """A grey progressive JPEG of nothing: each scan takes 50 bytes, and a pass over all blocks to decode."""
    blocks = -(-width // 8) * -(-height // 8)

    def segment(marker: int, content: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content

    def scan(first: int, last: int, bits: int, data: bytes) -> bytes:
        return segment(0xDA, bytes([1, 1, 0, first, last, bits])) + data

    one_code = bytes([1]) + bytes(15)
    # A run of 32,767 blocks without coefficients: the code 0, and fourteen ones. A zero follows each 0xff.
    runs = "".join("0" + "1" * 14 for _ in range(-(-blocks // 32767)))
    packed = int(runs.ljust(-(-len(runs) // 8) * 8, "1"), 2).to_bytes(-(-len(runs) // 8), "big")
    empty = packed.replace(b"\xff", b"\xff\0")
    refined = [scan(1, 63, (bit + 1) << 4 | bit, empty) for bit in range(12, -1, -1)]
    refined += [scan(1, 63, 1 << 4, empty)] * scans
    return b"".join(
        [
            b"\xff\xd8",
            segment(0xDB, bytes([0]) + bytes([1]) * 64),
            segment(0xC2, struct.pack(">BHHB", 8, height, width, 1) + bytes([1, 0x11, 0])),
            segment(0xC4, bytes([0x00]) + one_code + bytes([0x00])),
            segment(0xC4, bytes([0x10]) + one_code + bytes([0xE0])),
            scan(0, 0, 0, bytes(-(-blocks // 8))),
            scan(1, 63, 13, empty),
            *refined[: scans - 2],
            b"\xff\xd9",
        ]
    )
