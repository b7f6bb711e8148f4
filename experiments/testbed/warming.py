"""Warming an edge before it is measured, as the dissertation does (6.2.7): it learns what visitors looked at.

The edge is told over its own Prediction service, as by devices that recognised these objects themselves; so
nothing is recognised, and thousands of requests take a second.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from nearsight.common.catalogue_answers import listing_of
from nearsight.common.errors import SetupError
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.common.rpc.security import ClientSecurity
from nearsight.common.status import ask_status
from nearsight.protos import catalogue_pb2, prediction_pb2
from nearsight.protos.catalogue_pb2 import GetObjectModelsRequest, ListObjectsRequest
from nearsight.protos.prediction_pb2 import GetNextObjectsRequest

CALL_TIMEOUT_S = 10.0
POLL_S = 0.25
_IN_FLIGHT = 16
_MODELS_PER_CALL = 32
_HELD = re.compile(r"(\d+) of (\d+)")
_FETCHING = re.compile(r"(\d+) objects")
_GUESTS = re.compile(r"(\d+) objects, (\d+) useful, (\d+) wasted")


@dataclass(frozen=True, slots=True)
class GuestCount:
    """An edge's account of what it fetched while nobody asked (`edge.idle_prefetch`)."""

    entered: int
    useful: int
    wasted: int


def report_requests(
    edge: str,
    requests: Iterable[tuple[str, str]],
    *,
    catalogue: str,
    security: ClientSecurity | None = None,
) -> int:
    """Tell an edge what devices recognised.

    Parameters
    ----------
    edge : str
        Endpoint.
    requests : iterable of (device, object id)
        In the order of time; each device has a history of its own.
    catalogue : str
        Of the objects.
    security : ClientSecurity, optional
        Keys, if the edge uses encryption.

    Returns
    -------
    int
        How many there were.

    Raises
    ------
    NearsightError
        If the edge does not take one.
    """
    service = prediction_pb2.DESCRIPTOR.services_by_name["Prediction"]
    count = 0
    last: dict[str, Future[Reply]] = {}
    with Channel(edge, client_id="warm-up", security=security) as channel:
        stub = Stub(channel, service)
        pending: deque[Future[Reply]] = deque()
        for device, object_id in requests:
            if device in last:
                last[device].result()  # the edge serves several at a time: a device's order must be kept
            call = stub.get_next_objects.future(
                GetNextObjectsRequest(current_object_id=object_id),
                timeout_s=CALL_TIMEOUT_S,
                catalogue=catalogue,
                client_id=device,
            )
            last[device] = call
            pending.append(call)
            if len(pending) >= _IN_FLIGHT:
                pending.popleft().result()
            count += 1
        for call in pending:
            call.result()
    return count


def admit(
    edge: str,
    *,
    with_models: bool = False,
    catalogue: str,
    security: ClientSecurity | None = None,
) -> tuple[str, ...]:
    """Make an edge take up the catalogue.

    Parameters
    ----------
    edge : str
        Endpoint.
    with_models : bool
        Let it fetch all object models as well. They are kept beside its cache, so that later changes of the
        cache put nothing on the link to the cloud.
    catalogue : str
        Which.
    security : ClientSecurity, optional
        Keys, if the edge uses encryption.

    Returns
    -------
    tuple of str
        The ids of the objects.

    Raises
    ------
    NearsightError
        If the edge cannot.
    """
    service = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]
    with Channel(edge, client_id="warm-up", security=security) as channel:
        stub = Stub(channel, service)
        listed = stub.list_objects(ListObjectsRequest(), timeout_s=CALL_TIMEOUT_S, catalogue=catalogue)
        ids = tuple(listing_of(listed).versions)
        for start in range(0, len(ids) if with_models else 0, _MODELS_PER_CALL):
            stub.get_object_models(
                GetObjectModelsRequest(object_ids=ids[start : start + _MODELS_PER_CALL]),
                timeout_s=CALL_TIMEOUT_S,
                catalogue=catalogue,
            )
    return ids


def cached_objects(edge: str, security: ClientSecurity | None = None) -> int | None:
    """Objects in the edge's recognition cache; None before it has the catalogue."""
    found = _HELD.search(_fact(edge, "cached objects", security))
    return int(found.group(1)) if found else None


def guest_count(edge: str) -> GuestCount:
    """Guests that entered the edge's cache so far, and what became of them."""
    found = _GUESTS.search(_fact(edge, "prefetched"))
    return GuestCount(*map(int, found.groups())) if found else GuestCount(0, 0, 0)


def wait_settled(
    edge: str,
    *,
    objects: int | None = None,
    quiet_s: float = 1.0,
    timeout_s: float = 60.0,
    security: ClientSecurity | None = None,
) -> int:
    """Wait until the edge's cache does not change any more.

    Parameters
    ----------
    edge : str
        Endpoint.
    objects : int, optional
        How many objects it must hold then; without it, whatever it chooses.
    quiet_s : float
        So long nothing may change.
    timeout_s : float
        How long to wait at most.
    security : ClientSecurity, optional
        Keys, if the edge uses encryption.

    Returns
    -------
    int
        Objects in the cache. An edge that goes on changing on its own choice is taken as it is.

    Raises
    ------
    SetupError
        If it does not come to hold ``objects``.
    """
    deadline_s = time.monotonic() + timeout_s
    state, since_s = _state(edge, security), time.monotonic()
    while True:
        if state[1] == 0 and time.monotonic() - since_s >= quiet_s and objects in {None, state[0]}:
            return state[0]
        if time.monotonic() > deadline_s:
            if objects is None:
                return state[0]
            raise SetupError(
                f"the edge at {edge} holds {state[0]} objects after {timeout_s:.0f} s, not {objects}"
            )
        time.sleep(POLL_S)
        before, state = state, _state(edge, security)
        if state != before:
            since_s = time.monotonic()


def wait_all_settled(edges: Mapping[str, int | None], *, timeout_s: float = 60.0) -> None:
    """Wait for several edges at the same time; for each, the objects that it must hold then, if any.

    Raises
    ------
    SetupError
        If one does not come to hold them.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(edges))) as pool:
        waits = [
            pool.submit(wait_settled, edge, objects=objects, timeout_s=timeout_s)
            for edge, objects in edges.items()
        ]
    for wait in waits:
        wait.result()


def _state(edge: str, security: ClientSecurity | None) -> tuple[int, int]:
    """Objects in the cache, and objects that are being fetched."""
    fetching = _FETCHING.search(_fact(edge, "fetching", security))
    return cached_objects(edge, security) or 0, int(fetching.group(1)) if fetching else 0


def _fact(edge: str, name: str, security: ClientSecurity | None = None) -> str:
    (status,) = ask_status([edge], timeout_s=CALL_TIMEOUT_S, security=security)
    if status.error:
        raise SetupError(f"the edge at {edge} does not answer: {status.error}")
    return next((value for key, value in status.details if key.endswith(name)), "")
