"""Fits the twin's costs to one short run of the real daemons.

The twin runs the same trace without scatter. The computing time of each request is compared with the measured
times of all sessions: the same photo, in the same form, at the same tier. Computing times are scaled by the
median of these ratios; this is repeated a few times. The scatter is that of one photo that a device sends
several times in one session, because sessions differ in pace, and photos in effort, which is known. So only a
few numbers per tier are fitted. The growth of costs with caches, users, bytes and networks is part of the
model. The validation uses other points.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from nearsight.experiments.rig.rows import UNKNOWN, RequestRow
from nearsight.experiments.twin.cost_model import CostModel, Scatter
from nearsight.experiments.twin.session import ADAPTIVE, LOAD_BALANCED, ONLY_CLOUD

_QUANTILES = 41
_LARGEST_QUANTILE = 0.99
_LEAST_ROWS = 5
_SAME_SIZE = 0.02
_OFTEN = 4

Rows = Mapping[str, Sequence[RequestRow]]
"""Rows by configuration."""

Sessions = Mapping[str, Sequence[Sequence[RequestRow]]]
"""Rows of several sessions, by configuration."""

Photos = Mapping[tuple[str, int], str]
"""The photo of each request, by visitor and number of the request."""


def fit(
    costs: CostModel,
    measured: Sessions,
    simulate: Callable[[CostModel], Rows],
    *,
    photos: Photos,
    rounds: int = 3,
    origin: str = "",
) -> CostModel:
    """Fit the costs.

    Parameters
    ----------
    costs : CostModel
        Costs with the profiles of this machine.
    measured : mapping of str to sessions
        Sessions of only-cloud, load-balanced and prefetching-adaptive on the testbed, all with the same
        trace.
    simulate : callable
        Runs the same configurations in the twin, with the given costs.
    photos : mapping of (visitor, number) to str
        If it is empty, the scatter is that of different photos.
    rounds : int
        Number of corrections of the scales.
    origin : str
        Description of the measurements, for users.
    """
    steady = dict.fromkeys((*_WORK, "call_work"), Scatter(ratios=(1.0,)))
    rows = {name: [row for session in sessions for row in session] for name, sessions in measured.items()}
    fitted = _with_calls(costs.model_copy(update={**steady, "fitted_to": origin}), rows)
    for last in (*(False,) * (rounds - 1), True):
        modelled = simulate(fitted)
        fitted = fitted.model_copy(
            update={
                name: _corrected(
                    getattr(fitted, name),
                    work.ratios(rows, modelled),
                    work.of_same_photos(measured, photos),
                    last=last,
                )
                for name, work in _WORK.items()
            }
        )
    return fitted


@dataclass(frozen=True, slots=True)
class _Work:
    """Selects the times of one kind of work: rows of some configurations that a tier answered."""

    configurations: tuple[str, ...]
    tier: str
    column: str
    unknown: bool = False

    def ratios(self, measured: Rows, modelled: Rows) -> list[float]:
        """Measured over modelled times of requests with the same tier, outcome and form in both."""
        found = []
        for name in self.configurations:
            twins = {(row.visitor, row.number): row for row in modelled.get(name, ())}
            for row in measured.get(name, ()):
                twin = twins.get((row.visitor, row.number))
                if twin is not None and self._counts(row) and self._counts(twin) and _same_form(row, twin):
                    found.append(getattr(row, self.column) / max(1e-3, getattr(twin, self.column)))
        return found

    def of_same_photos(self, measured: Sessions, photos: Photos) -> list[float]:
        """Times over the median time of the same photo, device and session, if it was sent often enough.

        Modelled times are not needed here, because the twin may use other numbers of features.
        """
        found = []
        sessions = [session for name in self.configurations for session in measured.get(name, ())]
        for session in sessions:
            times: dict[tuple[str, str], list[float]] = defaultdict(list)
            for row in session:
                photo = photos.get((row.visitor, row.number))
                if photo is not None and self._counts(row):
                    times[row.visitor, photo].append(max(1e-3, float(getattr(row, self.column))))
            often = [some for some in times.values() if len(some) >= _OFTEN]
            found += [one / median(some) for some in often for one in some]
        return found

    def _counts(self, row: RequestRow) -> bool:
        return row.answered_by == self.tier and (row.outcome == UNKNOWN) == self.unknown


_WORK = {
    "edge_work": _Work((LOAD_BALANCED,), "edge", "edge_compute_ms"),
    "device_work": _Work((ADAPTIVE,), "device", "latency_ms"),
    "cloud_work": _Work((ONLY_CLOUD,), "cloud", "cloud_compute_ms"),
    # With or without an edge before the cloud: a session has few of them, and their duration decides at which
    # photo an edge changes the form in which it forwards photos.
    "second_look": _Work((ONLY_CLOUD, LOAD_BALANCED, ADAPTIVE), "cloud", "cloud_compute_ms", unknown=True),
}


def _same_form(row: RequestRow, twin: RequestRow) -> bool:
    return abs(row.sent_bytes - twin.sent_bytes) <= _SAME_SIZE * max(row.sent_bytes, twin.sent_bytes)


def _corrected(
    scatter: Scatter, ratios: Sequence[float], same: Sequence[float] = (), *, last: bool
) -> Scatter:
    """Compute the scale from ``ratios``, and the scatter from the ``same`` photos if they suffice."""
    if len(ratios) < _LEAST_ROWS:
        return Scatter(scale=scatter.scale) if last else scatter
    typical = float(np.median(ratios))
    scattered = same if len(same) >= _LEAST_ROWS else ratios
    places = np.linspace(0.0, _LARGEST_QUANTILE, _QUANTILES)
    quantiles = np.round(np.quantile(scattered, places) / np.median(scattered), 4).tolist() if last else [1.0]
    return Scatter(scale=scatter.scale * typical, ratios=tuple(quantiles))


def _with_calls(costs: CostModel, rows: Rows) -> CostModel:
    """Set the times of calls to the edge, without its queue and work; first calls are separate."""
    first, later = (
        [
            max(0.1, row.latency_ms - row.edge_queue_ms - row.edge_compute_ms - costs.prepare_ms)
            for row in rows.get(LOAD_BALANCED, ())
            if row.answered_by == "edge" and (row.number == 0) == is_first
        ]
        for is_first in (True, False)
    )
    if len(later) < _LEAST_ROWS:
        return costs
    found = _corrected(Scatter(), later, last=True)
    connect_ms = max(0.0, float(np.median(first)) - found.scale) if len(first) >= _LEAST_ROWS else 0.0
    update = {
        "call_ms": found.scale,
        "call_work": found.model_copy(update={"scale": 1.0}),
        "connect_ms": connect_ms,
    }
    return costs.model_copy(update=update)
