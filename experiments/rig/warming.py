"""Warms up an edge before it is measured, with the requests of earlier visitors (dissertation, 6.2.7).

The edge receives these requests through its Prediction service, as if devices had recognised the objects
themselves. No recognition takes place, so thousands of requests take one second.

``python -m nearsight.experiments.rig.warming`` does this on the edge's own node, because the machine that
controls a testbed may not be able to reach the edge, for example one in a namespace.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from nearsight.common.catalogue.answers import listing_of
from nearsight.common.errors import NearsightError, SetupError
from nearsight.common.operation.status import ask_status
from nearsight.common.rpc.client import Channel, Reply, Stub
from nearsight.common.rpc.security import ClientSecurity
from nearsight.edge.prediction import PrefetchCount
from nearsight.experiments.traces.visits import read_visits_csv
from nearsight.protos import catalogue_pb2, prediction_pb2
from nearsight.protos.catalogue_pb2 import GetObjectModelsRequest, ListObjectsRequest
from nearsight.protos.prediction_pb2 import GetNextObjectsRequest

CALL_TIMEOUT_S = 10.0
POLL_S = 0.25
_IN_FLIGHT = 16
_MODELS_PER_CALL = 32
_CACHED, _FETCHING, _CHOSEN = r"(\d+) of", r"(\d+) objects", r"k=(\d+)"
_PREFETCHED = r"(\d+) objects, (\d+) useful, (\d+) wasted"
_QUIET_S, _BUILDS_AGAIN_S = 1.0, 6.0
"""Time without change of a settled cache [s]; the latter while the cache is below its chosen size. A build
took 1.2 s in a warm-up."""


@dataclass(frozen=True, slots=True)
class CacheState:
    """State of an edge's cache: objects held, objects being fetched, and the size that it chose.

    All are 0 before the edge has the catalogue.
    """

    cached: int
    fetching: int
    chosen: int = 0

    def settles_in_s(self) -> float:
        """Time without change after which the cache is settled [s]; inf while objects are fetched.

        After a build an edge pauses for four times the build's duration. An edge that chose to hold more
        objects than it holds will build again.
        """
        if self.fetching:
            return math.inf
        return _BUILDS_AGAIN_S if self.cached < self.chosen else _QUIET_S


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The warm-up of one edge."""

    edge: str
    """Endpoint."""
    catalogue: str = "museum"
    """Catalogue of the objects."""
    security: ClientSecurity | None = None
    """Keys, if the edge uses encryption."""

    def load_catalogue(self, *, with_models: bool = False) -> None:
        """Make the edge load the catalogue.

        Parameters
        ----------
        with_models : bool
            Also make it fetch all object models. It keeps them beside its cache, so that later changes of the
            cache cause no traffic on the link to the cloud.

        Raises
        ------
        NearsightError
            If a call to the edge fails.
        """
        service = catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"]
        with self._channel() as channel:
            stub = Stub(channel, service)
            listed = stub.list_objects(
                ListObjectsRequest(), timeout_s=CALL_TIMEOUT_S, catalogue=self.catalogue
            )
            ids = tuple(listing_of(listed).versions)
            for start in range(0, len(ids) if with_models else 0, _MODELS_PER_CALL):
                stub.get_object_models(
                    GetObjectModelsRequest(object_ids=ids[start : start + _MODELS_PER_CALL]),
                    timeout_s=CALL_TIMEOUT_S,
                    catalogue=self.catalogue,
                )

    def report(self, requests: Iterable[tuple[str, str]]) -> int:
        """Report recognitions (device, object id) to the edge, in the order of time; returns their number.

        Raises
        ------
        NearsightError
            If a call to the edge fails.
        """
        service = prediction_pb2.DESCRIPTOR.services_by_name["Prediction"]
        count = 0
        last: dict[str, Future[Reply]] = {}
        pending: deque[Future[Reply]] = deque()
        with self._channel() as channel:
            stub = Stub(channel, service)
            for device, object_id in requests:
                if device in last:
                    # the edge serves calls concurrently, but the order of each device must be kept
                    last[device].result()
                last[device] = stub.get_next_objects.future(
                    GetNextObjectsRequest(current_object_id=object_id),
                    timeout_s=CALL_TIMEOUT_S,
                    catalogue=self.catalogue,
                    client_id=device,
                )
                pending.append(last[device])
                if len(pending) >= _IN_FLIGHT:
                    pending.popleft().result()
                count += 1
            for call in pending:
                call.result()
        return count

    def wait_settled(self, *, objects: int | None = None, timeout_s: float = 60.0) -> int:
        """Wait until the edge's cache no longer changes.

        Parameters
        ----------
        objects : int, optional
            Number of objects that the cache must hold then; None: the number that it chooses.
        timeout_s : float
            Timeout [s].

        Returns
        -------
        int
            Number of objects in the cache. Without ``objects``, also returned after a timeout.

        Raises
        ------
        SetupError
            If the cache does not hold ``objects`` objects in time.
        """
        deadline_s = time.monotonic() + timeout_s
        state, since_s = self.state(), time.monotonic()
        while True:
            quiet = time.monotonic() - since_s >= state.settles_in_s()
            if quiet and objects in {None, state.cached}:
                return state.cached
            if time.monotonic() > deadline_s:
                if objects is None:
                    return state.cached
                raise SetupError(
                    f"the edge at {self.edge} holds {state.cached} objects after {timeout_s:.0f} s, "
                    f"not {objects}"
                )
            time.sleep(POLL_S)
            before, state = state, self.state()
            if state != before:
                since_s = time.monotonic()

    def state(self) -> CacheState:
        """State of the edge's cache now.

        Raises
        ------
        SetupError
            If the edge does not answer.
        """
        facts = self._facts()
        return CacheState(
            cached=_number(facts, "cached objects", _CACHED),
            fetching=_number(facts, "fetching", _FETCHING),
            chosen=_number(facts, "decision", _CHOSEN),
        )

    def prefetched(self) -> PrefetchCount:
        """Counts of prefetched objects in the edge's cache so far, and of the useful and wasted ones."""
        return PrefetchCount(*(_numbers(self._facts(), "prefetched", _PREFETCHED) or (0, 0, 0)))

    def _channel(self) -> Channel:
        return Channel(self.edge, client_id="warm-up", security=self.security)

    def _facts(self) -> Mapping[str, str]:
        (status,) = ask_status([self.edge], timeout_s=CALL_TIMEOUT_S, security=self.security)
        if status.error:
            raise SetupError(f"the edge at {self.edge} does not answer: {status.error}")
        return dict(status.details)


def _number(facts: Mapping[str, str], name: str, pattern: str) -> int:
    """The only number in a status entry; 0 if there is none."""
    found = _numbers(facts, name, pattern)
    return found[0] if found else 0


def _numbers(facts: Mapping[str, str], name: str, pattern: str) -> tuple[int, ...]:
    """Numbers in a status entry, from the first catalogue that has it; empty if there are none."""
    value = next((value for key, value in facts.items() if key.endswith(name)), "")
    found = re.search(pattern, value)
    return tuple(map(int, found.groups())) if found else ()


def main(
    *,
    edge: Annotated[str, typer.Option(help="endpoint of the edge")],
    visits: Annotated[Path, typer.Option(help="visits of earlier visitors; their exhibits are object ids")],
    catalogue: Annotated[str, typer.Option(help="catalogue of the objects")] = "museum",
    key: Annotated[Path | None, typer.Option(help="secret key, if the edge uses encryption")] = None,
    server_key: Annotated[str, typer.Option(help="the edge's public key")] = "",
) -> None:
    """Send the visits of earlier visitors to an edge, and wait until its cache has settled."""
    own = WarmUp(edge, catalogue, ClientSecurity(key, server_key) if key else None)
    try:
        own.load_catalogue()
        count = own.report((visit.visitor, visit.exhibit) for visit in read_visits_csv(visits))
        objects = own.wait_settled()
    except NearsightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the entry point of a command
        raise typer.Exit(error.exit_code) from error
    print(f"{count} earlier visits, {objects} objects in the cache")  # noqa: T201 - for its log


if __name__ == "__main__":
    typer.run(main)
