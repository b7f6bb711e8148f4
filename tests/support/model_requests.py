"""Logs of requests for models."""

from __future__ import annotations

from pathlib import Path

from nearsight.experiments.traces.model_requests import ModelRequests


def write_events(path: Path, requests: ModelRequests) -> None:
    """Write a line `id time model` for each request; ids count from 0, times are written exactly."""
    pairs = zip(requests.times_s.tolist(), requests.models.tolist(), strict=True)
    path.write_text(
        "".join(f"{n} {time_s!r} {requests.names[one]}\n" for n, (time_s, one) in enumerate(pairs))
    )
