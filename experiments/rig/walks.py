"""Selects the visitors of a replay: those whose visits warm up edges, and those whose photos are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.traces.plan import mix_in_unknown
from nearsight.experiments.traces.requests import (
    PhotoRequest,
    assign_objects,
    photo_requests,
    write_requests_csv,
)
from nearsight.experiments.traces.visits import Visit

TRAINING_SHARE = 0.8
"""As in the dissertation's evaluation of its Markov model (6.2.5.2)."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A device's trace in the dissertation's form, and its offset within the second [s]."""

    visitor: str
    path: Path
    photos: int
    phase_s: float


@dataclass(frozen=True, slots=True)
class Crowd:
    """Visits, split by visitor into a training and a test set."""

    training: tuple[Visit, ...]
    test: tuple[Visit, ...]
    """Visits of the two sets; no visitor is in both."""

    @classmethod
    def divided(cls, visits: Sequence[Visit], rng: np.random.Generator) -> Crowd:
        """Put four fifths of the visitors into the training set."""
        names = sorted({visit.visitor for visit in visits})
        order = [str(name) for name in rng.permutation(names)]
        training = frozenset(order[: int(TRAINING_SHARE * len(order))])
        return cls(
            tuple(visit for visit in visits if visit.visitor in training),
            tuple(visit for visit in visits if visit.visitor not in training),
        )

    def mapped(self, object_ids: Sequence[str]) -> dict[str, str]:
        """The object at each exhibit's position, by exhibit."""
        exhibits = sorted({visit.exhibit for visit in (*self.training, *self.test)})
        return assign_objects(exhibits, sorted(object_ids))

    def transitions(self, objects: Mapping[str, str]) -> list[tuple[str, str]]:
        """Visits of the training visitors as (visitor, object), in the order of time."""
        ordered = sorted(self.training, key=lambda visit: visit.start_s)
        return [(visit.visitor, objects[visit.exhibit]) for visit in ordered]


@dataclass(frozen=True, slots=True)
class Following:
    """How test visitors are replayed."""

    devices: int
    """Number of visitors, each with one device."""
    seconds: float
    """Length of the replay [s]; one photo per second while a visitor looks at an exhibit."""
    unknown_share: float
    """Share of the photos that show objects outside the catalogue."""


def follow(
    crowd: Crowd,
    following: Following,
    objects: Mapping[str, str],
    photos: Mapping[str, Sequence[str]],
    unknown: Sequence[str],
    rng: np.random.Generator,
) -> dict[str, tuple[PhotoRequest, ...]]:
    """Photo requests of the devices, by visitor.

    The replay of each visitor starts at a random request from which the visit lasts for the whole replay.

    Raises
    ------
    InvalidArgument
        If too few visits are long enough.
    """
    planned = photo_requests(crowd.test, photos, rng, objects=objects)
    length_ms = following.seconds * 1000
    long_enough = [
        name for name, asked in planned.items() if asked[-1].time_ms - asked[0].time_ms >= length_ms
    ]
    if len(long_enough) < following.devices:
        raise InvalidArgument(
            f"{following.devices} visits of at least {following.seconds:g} s are needed, "
            f"the test set has {len(long_enough)}"
        )
    followed = {}
    for name in rng.choice(long_enough, following.devices, replace=False):
        asked = planned[str(name)]
        latest_ms = asked[-1].time_ms - length_ms
        starts = [request.time_ms for request in asked if request.time_ms <= latest_ms]
        start_ms = starts[int(rng.integers(len(starts)))]
        kept = [request for request in asked if start_ms <= request.time_ms < start_ms + length_ms]
        followed[str(name)] = mix_in_unknown(kept, unknown, following.unknown_share, rng)
    return followed


def write_traces(
    folder: Path, planned: Mapping[str, Sequence[PhotoRequest]], rng: np.random.Generator
) -> tuple[Trace, ...]:
    """Write one file per device; each device gets a random offset within the second, as people do."""
    folder.mkdir(parents=True, exist_ok=True)
    traces = []
    for visitor, requests in planned.items():
        path = folder / f"{visitor}.csv"
        write_requests_csv(path, requests)
        traces.append(Trace(visitor, path, len(requests), float(rng.random())))
    return tuple(traces)
