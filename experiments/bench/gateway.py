"""The gateway before an edge: latency that it adds to a photo, and concurrent live streams of many browsers.

Cloud, edge and gateway are processes; the edge holds the whole catalogue. The same photos are sent to it over
ZeroMQ, through the gateway over HTTP and over a WebSocket, and through a server of Gabriel. Each photo is
sent in all of these ways in turn, so that changes of the machine's speed affect all of them equally.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cv2
import numpy as np
from websockets.sync.client import connect

from nearsight.common.errors import Unavailable
from nearsight.common.recognition.images import load_colour
from nearsight.common.request.answer import answer_of
from nearsight.common.rpc.client import Channel, Stub
from nearsight.device.recognizer import Recognizer
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.experiments.bench.benchmark import Benchmark, ReportStep, percentiles
from nearsight.experiments.bench.gabriel import gabriel_server
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.rig.processes import ManagedProcess, ProcessGroup
from nearsight.experiments.rig.tiers import (
    CATALOGUE,
    NO_STANDBY,
    endpoint_of,
    start_daemon,
    tier_arguments,
)
from nearsight.experiments.studies.museums import TaughtMuseum
from nearsight.protos import recognition_pb2
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest

MUSEUM = MuseumSettings(objects=32, photos_per_object=2, unknown_photos=0)
MAX_ADDED_MS = 2.0
_TIMEOUT_S, _FILL_S = 10.0, 60.0
_JPEG_QUALITY = 80
"""JPEG quality of a browser's photos, whose longer side has 640 pixels."""

Ask = Callable[[bytes], str]
"""Sends a photo and returns the label of the answer."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Processes of a deployment."""

    edge: ManagedProcess
    gateway: ManagedProcess

    def url(self, scheme: str, path: str) -> str:
        """Address of a path below the catalogue's at the gateway."""
        address = endpoint_of(self.gateway).partition("://")[2]
        return f"{scheme}://{address}/v1/catalogues/{CATALOGUE}/{path}"


def photos_of(museums: Path) -> tuple[TaughtMuseum, list[bytes]]:
    """A trained museum, and its photos as a browser would send them."""
    museum = TaughtMuseum(RunOptions(museums=museums), MUSEUM)
    photos = []
    for paths in museum.photos.values():
        pixels = load_colour(Path(paths[0]).read_bytes()).pixels
        _, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
        photos.append(encoded.tobytes())
    return museum, photos


@contextmanager
def deployed(
    museum: TaughtMuseum, photos: Sequence[bytes], folder: Path, *, result_cache: bool = False
) -> Iterator[Deployment]:
    """Start a cloud, an edge that answers all photos itself, and a gateway, as processes.

    Parameters
    ----------
    museum : TaughtMuseum
        Catalogue of the cloud.
    photos : sequence of bytes
        Photos to send to the edge until it answers all of them.
    folder : Path
        Folder of logs.
    result_cache : bool
        Whether the edge has a result cache.
    """
    with ProcessGroup(folder) as group:
        cloud = start_daemon(group, "cloud", "cloud", {"database": museum.database})
        caches = {"cache.policy": "everything", "result_cache.enabled": result_cache}
        edge = start_daemon(group, "edge", "edge", {**NO_STANDBY, "cloud": endpoint_of(cloud), **caches})
        given = {"listen": "127.0.0.1:0", "edge": endpoint_of(edge), "limits.rate_per_s": 1e6}
        running = Deployment(edge, group.start("gateway", tier_arguments("gateway", given)))
        _fill(endpoint_of(edge), photos)
        yield running


def _fill(endpoint: str, photos: Sequence[bytes]) -> None:
    """Send photos until the edge answers all that show a known object without the cloud.

    Raises
    ------
    Unavailable
        If it does not within a minute, or knows none of them.
    """
    with Channel(endpoint, client_id="filling") as channel:
        recognition = Stub(channel, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])
        until_s = time.monotonic() + _FILL_S
        while True:
            answers = [_ask(recognition, photo) for photo in photos]
            by = [answer.answered_by for answer in answers if answer.found is not None]
            if by and all(tier == "edge" for tier in by):
                return
            if time.monotonic() > until_s:
                unknown, itself = len(photos) - len(by), by.count("edge")
                raise Unavailable(
                    f"after {_FILL_S:.0f} s, the edge recognises {itself} of {len(photos)} photos itself; "
                    f"{unknown} are unknown",
                    advice="is the machine too busy?",
                )
            time.sleep(0.5)


def _ask(recognition: Stub, photo: bytes) -> Any:
    request = RecognizeRequest(image=ImageInput(size_bytes=len(photo)))
    reply = recognition.recognize(request, timeout_s=_TIMEOUT_S, blobs=[photo], catalogue=CATALOGUE)
    return answer_of(reply, "edge", reply.sent_bytes)[0]


@contextmanager
def _sdk(running: Deployment) -> Iterator[Ask]:
    settings = RecognizerSettings(prefetch=PrefetchSettings(enabled=False))
    with Recognizer(endpoint_of(running.edge), None, CATALOGUE, settings=settings) as recognizer:
        yield lambda photo: recognizer.recognize_blocking(photo, timeout_s=_TIMEOUT_S).label or ""


@contextmanager
def _zeromq(running: Deployment) -> Iterator[Ask]:
    with Channel(endpoint_of(running.edge), client_id="bench") as channel:
        recognition = Stub(channel, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])

        def ask(photo: bytes) -> str:
            found = _ask(recognition, photo).found
            return found.label if found is not None else ""

        yield ask


@contextmanager
def _http(running: Deployment) -> Iterator[Ask]:
    address = urlsplit(running.url("http", "recognize"))
    connection = http.client.HTTPConnection(address.netloc, timeout=_TIMEOUT_S)

    def ask(photo: bytes) -> str:
        connection.request("POST", address.path, photo, {"Content-Type": "image/jpeg"})
        return json.loads(connection.getresponse().read())["label"] or ""

    yield ask
    connection.close()


@contextmanager
def _stream(running: Deployment) -> Iterator[Ask]:
    with connect(running.url("ws", "stream")) as connection:
        connection.recv(timeout=_TIMEOUT_S)

        def ask(photo: bytes) -> str:
            connection.send(bytes(4) + photo)
            return json.loads(connection.recv(timeout=_TIMEOUT_S))["label"] or ""

        yield ask


def bench_answers(quick: bool, museums: Path, folder: Path, report_step: ReportStep) -> Benchmark:
    """Measure the latency that the gateway adds to one photo at a time.

    Parameters
    ----------
    quick : bool
        Few rounds.
    museums : Path
        Folder of generated museums.
    folder : Path
        Folder of logs.
    report_step : callable
        Called with the current step.
    """
    rounds = 2 if quick else 12
    report_step("painting and training a museum")
    museum, photos = photos_of(museums)
    report_step(f"gateway: {rounds} rounds of {len(photos)} photos, each in every way")
    with ExitStack() as stack:
        running = stack.enter_context(deployed(museum, photos, folder))
        ways: dict[str, Ask] = {
            name: stack.enter_context(way(running))
            for name, way in {"ZeroMQ": _zeromq, "SDK": _sdk, "HTTP": _http, "stream": _stream}.items()
        }
        servers: dict[str, ManagedProcess] = {"HTTP": running.gateway, "stream": running.gateway}
        peer = stack.enter_context(gabriel_server(folder, endpoint_of(running.edge)))
        if peer is not None:
            ways["Gabriel"], servers["Gabriel"] = peer
        rows = measured(ways, servers, photos, rounds)
    columns = {
        "way": "{way}",
        "photos": "{photos}",
        "recognised": "{recognised:.0%}",
        "p50 ms": "{p50_ms:.2f}",
        "p95 ms": "{p95_ms:.2f}",
        "p50 above ZeroMQ": "{more_ms:+.2f}",
        "rounds": "{least_more_ms:+.2f} … {most_more_ms:+.2f}",
        "CPU ms of the server": "{server_cpu_ms:.2f}",
        "at most 2 ms more": "{reached}",
    }
    return Benchmark("gateway-answers", "One photo at a time, to the same edge", columns, rows)


def measured(
    ways: Mapping[str, Ask], servers: Mapping[str, ManagedProcess], photos: Sequence[bytes], rounds: int
) -> list[dict[str, Any]]:
    """Send each photo in every way in turn; then all photos in one way at a time, to measure CPU time.

    Parameters
    ----------
    ways : mapping of str to callable
        Contains ZeroMQ, the baseline of the others.
    servers : mapping of str to ManagedProcess
        The process between client and edge, for ways that have one.
    photos : sequence of bytes
        Photos of a round.
    rounds : int
        Counted rounds, after one round of warm-up.

    Returns
    -------
    list of dict
        For each way: p50 and p95; the median difference to ZeroMQ for the same photo in the same round; the
        minimum and maximum of its medians per round; CPU time of the server per photo. All in ms.
    """
    times = {name: np.zeros((rounds, len(photos))) for name in ways}
    known, order = dict.fromkeys(ways, 0), list(ways)
    for number in range(-1, rounds):
        for place, photo in enumerate(photos):
            order = [*order[1:], order[0]]
            for name in order:
                begun_s = time.perf_counter()
                label = ways[name](photo)
                if number >= 0:
                    times[name][number, place] = (time.perf_counter() - begun_s) * 1e3
                    known[name] += bool(label)
    rows = []
    for name, spent_ms in times.items():
        p50_ms, p95_ms = percentiles(spent_ms.ravel().tolist(), 50, 95)
        more = spent_ms - times["ZeroMQ"]
        of_rounds = np.median(more, axis=1)
        rows.append(
            {
                "way": name,
                "photos": spent_ms.size,
                "recognised": known[name] / spent_ms.size,
                "p50_ms": p50_ms,
                "p95_ms": p95_ms,
                "more_ms": float(np.median(more)),
                "least_more_ms": float(of_rounds.min()),
                "most_more_ms": float(of_rounds.max()),
                "server_cpu_ms": _cpu_ms(ways[name], servers.get(name), photos, rounds),
                "reached": float(np.median(more)) <= MAX_ADDED_MS,
            }
        )
    return rows


def _cpu_ms(ask: Ask, server: ManagedProcess | None, photos: Sequence[bytes], rounds: int) -> float:
    """CPU time of a server per photo; the system's resolution is 10 ms."""
    if server is None:
        return 0.0
    before_s = server.cpu_s()
    for _ in range(rounds):
        for photo in photos:
            ask(photo)
    return 1e3 * (server.cpu_s() - before_s) / (rounds * len(photos))
