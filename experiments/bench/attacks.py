"""Attacks on a daemon by one hostile client, bounded in bytes, number of messages and time.

Each attack is a function that runs in a process of its own. It returns what it sent and how it was refused.
Attacks with malformed or incomplete messages are in `raw_attacks`.
"""

from __future__ import annotations

import random
import socket
import statistics
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nearsight.common.errors import NearsightError
from nearsight.common.rpc.allow_list import allow_client, forbid_client
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.common.rpc.security import ClientSecurity
from nearsight.device.peers.node import PeerNode
from nearsight.device.peers.presence.addresses import LOOPBACK_BROADCAST
from nearsight.device.peers.presence.beacons import Beacon, encode_beacon
from nearsight.device.peers.presence.identity import random_node_id
from nearsight.device.peers.presence.peer import PeerState
from nearsight.device.peers.report import ask_peers
from nearsight.device.peers.settings import PeerSettings
from nearsight.protos import catalogue_pb2, health_pb2, recognition_pb2

SERVER, HONEST, HOSTILE = "server", "honest", "hostile"
"""Names of keys."""
NOT_REFUSED = "not refused"
ALLOWED = "allowed"
"""Folder of the keys of allowed clients."""
CATALOGUE = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]
_RECOGNITION = recognition_pb2.DESCRIPTOR.services_by_name["Recognition"]
_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
TIMEOUT_S = 5.0
MAX_JOIN_S = 15.0
"""Timeout until a new device is a peer: three beacon periods."""
_NEWCOMERS, _FLOODED_S = 3, 2.0
"""New devices that join before and during the flood of beacons; time from its start to the first of them."""


@dataclass(frozen=True, slots=True)
class Victim:
    """The daemon that is attacked, and the data that its clients use."""

    endpoint: str
    metrics: str
    """``host:port`` of the metrics."""
    catalogue: str
    objects: tuple[str, ...]
    """Ids of the objects in the catalogue."""
    photos: tuple[str, ...]
    """Paths of photos."""
    keys: Path | None
    """Folder of the keys; None if the daemon serves without encryption."""
    seconds: float
    """Duration of the attack, or time to stay connected after everything is sent."""
    beacon_port: int
    """UDP port of the beacons, if the daemon is a device."""

    def security(self, name: str) -> ClientSecurity | None:
        """Keys of a client; None without encryption."""
        if self.keys is None:
            return None
        return ClientSecurity(self.keys / f"{name}.key_secret", self.keys / f"{SERVER}.key")

    def channel(self, name: str = HOSTILE, client_id: str = "") -> Channel:
        """A channel of the SDK's client with the keys ``name``, which by default is also its id."""
        return Channel(self.endpoint, client_id=client_id or name, security=self.security(name))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an attack, as its client sees it."""

    sent: str
    refused: str
    """How it was refused, or `NOT_REFUSED`."""
    broken: str = ""
    """A violated requirement that only this attack has; empty if there is none."""
    figures: dict[str, float] = field(default_factory=dict)


Attack = Callable[[Victim], Outcome]


def ask(stub: Stub, victim: Victim, photo: bytes) -> Future[Reply]:
    """Send a photo to be recognised, without waiting for the answer."""
    request = recognition_pb2.RecognizeRequest(image=recognition_pb2.ImageInput(size_bytes=len(photo)))
    future: Future[Reply] = stub.recognize.future(
        request, timeout_s=TIMEOUT_S, blobs=[photo], catalogue=victim.catalogue
    )
    return future


# ---- beacons


def beacon_flood(victim: Victim) -> Outcome:
    """Forged beacons of devices that answer no ping; new devices join before and during the flood."""
    over, sent = threading.Event(), Counter[str]()
    quiet_s = statistics.median(_joined_s(victim) for _ in range(_NEWCOMERS))
    flood = threading.Thread(target=_forge_beacons, args=(victim, sent, over))
    flood.start()
    try:
        time.sleep(_FLOODED_S)
        joined_s = [_joined_s(victim) for _ in range(_NEWCOMERS)]
    finally:
        over.set()
        flood.join()
    median_s, most_s = statistics.median(joined_s), max(joined_s)
    broken = f"a new device is not a peer after {most_s:.0f} s" if most_s >= MAX_JOIN_S else ""
    figures = {"quiet_join_s": quiet_s, "join_s": median_s, "most_join_s": most_s}
    refused = (
        f"{NOT_REFUSED}; devices join in {median_s:.1f} s (at most {most_s:.1f} s), before in {quiet_s:.1f} s"
    )
    return Outcome(f"{sent.total():,} forged beacons", refused, broken, figures)


def _joined_s(victim: Victim) -> float:
    """Time until a new device and the victim are peers of each other, at most `MAX_JOIN_S`."""
    node = PeerNode(PeerSettings(enabled=True, beacon_port=victim.beacon_port), device_id="newcomer")
    began_s = time.monotonic()
    try:
        node.start()
        while (passed_s := time.monotonic() - began_s) < MAX_JOIN_S:
            (answer,) = ask_peers([victim.endpoint], timeout_s=TIMEOUT_S)
            if (report := answer.report) is not None:
                known = {one.node_id for one in report.peers if one.state == PeerState.LIVE.value}
                if node.node_id in known and report.node_id in {one.node_id for one in node.peers()}:
                    return passed_s
            time.sleep(0.02)
        return MAX_JOIN_S
    finally:
        node.stop(1.0)


def _forge_beacons(victim: Victim, sent: Counter[str], over: threading.Event) -> None:
    """Send beacons from 40 addresses, at most 4,000 per second: more than broadcasts on Wi-Fi can reach."""
    rng = random.Random(1)
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("", 0)))  # accepts connections and sends nothing
        senders = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(40)]
        for number, sender in enumerate(senders, start=2):
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            sender.bind((f"127.0.0.{number}", 0))
        while not over.wait(0.01):
            for sender in senders:
                beacon = Beacon(random_node_id(rng), silent.getsockname()[1])
                sender.sendto(encode_beacon(beacon), (LOOPBACK_BROADCAST, victim.beacon_port))
                sent["beacons"] += 1


# ---- whole messages


def greedy_client(victim: Victim) -> Outcome:
    """One client with 300 concurrent photos."""
    photos = [Path(name).read_bytes() for name in victim.photos]
    return _in_flight(victim, 300, photos, "photos")


def costly_images(victim: Victim) -> Outcome:
    """A few small files, each of which takes seconds to decode."""
    photo = many_scans_jpeg(7000, 7000, scans=86)
    return _in_flight(victim, 4, [photo], f"JPEGs of {len(photo) // 1000} KB with 86 scans")


def new_catalogues(victim: Victim) -> Outcome:
    """An authorised client creates many catalogues."""
    image = Path(victim.photos[0]).read_bytes()
    counts: Counter[str] = Counter()
    end_s = time.monotonic() + victim.seconds
    with victim.channel() as channel:
        add = Stub(channel, CATALOGUE).add_objects.future
        for number in range(150):
            request = catalogue_pb2.AddObjectsRequest(
                objects=[catalogue_pb2.NewObject(object_id="forged", images=1)], index_later=True
            )
            if time.monotonic() > end_s:
                break
            reply = add(request, timeout_s=TIMEOUT_S, blobs=[image], catalogue=f"forged-{number}")
            _is_answered(reply.result, counts)
    return Outcome(f"{counts.total()} new catalogues", _in_words(counts))


def revoked_key(victim: Victim) -> Outcome:
    """A client's key is removed and allowed again while the client is connected."""
    if victim.keys is None:
        raise ValueError("a key can be revoked only if the daemon has keys")
    allowed = victim.keys / ALLOWED
    broken = []
    with victim.channel() as channel:
        check = partial(Stub(channel, _HEALTH).check, health_pb2.HealthRequest(), timeout_s=2.0)
        check(timeout_s=TIMEOUT_S)
        time.sleep(victim.seconds)
        forbid_client(HOSTILE, allowed)
        time.sleep(1.0)
        if _is_answered(check, Counter()):
            broken.append("served 1 s after its key was removed")
        allow_client(victim.keys / f"{HOSTILE}.key", allowed)
        time.sleep(1.0)
        if not _is_answered(check, Counter()):
            broken.append("refused 1 s after its key was allowed again")
    return Outcome(
        "calls after its key was removed and allowed again",
        "" if broken else "while the key was removed",
        "; ".join(broken),
    )


def burst(victim: Victim) -> Outcome:
    """200 concurrent clients, each with one photo at a time; refused clients retry after 0.1 s."""
    photos = [Path(name).read_bytes() for name in victim.photos]
    end_s = time.monotonic() + victim.seconds
    counts: Counter[str] = Counter()
    refusals_ms: list[float] = []

    def client(number: int, channel: Channel) -> None:
        stub = Stub(channel, _RECOGNITION)
        while time.monotonic() < end_s:
            photo = photos[number % len(photos)]
            started_s = time.monotonic()
            if not _is_answered(ask(stub, victim, photo).result, counts):
                refusals_ms.append((time.monotonic() - started_s) * 1e3)
                time.sleep(0.1)

    with ExitStack() as stack:
        channels = [stack.enter_context(victim.channel(client_id=f"guest-{n}")) for n in range(50)]
        with ThreadPoolExecutor(200) as pool:
            list(pool.map(client, range(200), 4 * channels))
    median_ms = statistics.median(refusals_ms) if refusals_ms else 0.0
    per_s = counts["answered"] / victim.seconds
    figures = {"refusal_median_ms": round(median_ms, 1), "answered_per_s": round(per_s, 2)}
    broken = f"refusals take {median_ms:.0f} ms" if median_ms > 100 else ""
    return Outcome(
        f"200 clients: {per_s:.1f} answers/s", f"{_in_words(counts)} in {median_ms:.0f} ms", broken, figures
    )


# ---- tools


def _in_flight(victim: Victim, most: int, photos: Sequence[bytes], what: str) -> Outcome:
    """Keep ``most`` photos in flight for the duration of the attack."""
    end_s = time.monotonic() + victim.seconds
    free = threading.Semaphore(most)
    counts: Counter[str] = Counter()

    def ended(future: Future[Reply]) -> None:
        _is_answered(future.result, counts)
        free.release()

    with victim.channel() as channel:
        stub = Stub(channel, _RECOGNITION)
        number = 0
        while free.acquire(timeout=max(0.0, end_s - time.monotonic())) and time.monotonic() < end_s:
            ask(stub, victim, photos[number % len(photos)]).add_done_callback(ended)
            number += 1
            time.sleep(0.001)  # at most 1,000 requests per second, even if they are refused early
    return Outcome(f"{number} {what}, {most} in flight", _in_words(counts))


def _is_answered(call: Callable[[], Reply], counts: Counter[str]) -> bool:
    """Wait for a call, and count its outcome."""
    try:
        call()
    except NearsightError as error:
        counts[error.code.name] += 1
        return False
    counts["answered"] += 1
    return True


def _in_words(counts: Counter[str]) -> str:
    refused = {code: n for code, n in counts.items() if code != "answered"}
    return ", ".join(f"{n} {code}" for code, n in refused.items()) or NOT_REFUSED


def many_scans_jpeg(width: int, height: int, *, scans: int) -> bytes:
    """A grey progressive JPEG without content: each scan has 50 bytes and needs a pass over all blocks."""
    blocks = -(-width // 8) * -(-height // 8)

    def segment(marker: int, content: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content

    def scan(first: int, last: int, bits: int, data: bytes) -> bytes:
        return segment(0xDA, bytes([1, 1, 0, first, last, bits])) + data

    one_code = bytes([1]) + bytes(15)
    # A run of 32,767 blocks without coefficients: the code 0 and fourteen ones. A zero byte follows each
    # 0xff.
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
