"""Visitors of the twin: from the traces of the testbed, or generated in any number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nearsight.experiments.rig.walks import Crowd, Following, Trace, follow
from nearsight.experiments.traces.movement import generate_visits
from nearsight.experiments.traces.plan import PlannedPhoto, delayed, plan_from_requests
from nearsight.experiments.twin.photos import PhotoSource, TwinPhoto
from nearsight.experiments.twin.session import TwinVisitor


def visitors_from_traces(
    traces: Sequence[Trace], photos: Mapping[Path, TwinPhoto]
) -> tuple[TwinVisitor, ...]:
    """The same visitors as on the testbed; ``photos`` has the properties of each image file."""
    return tuple(
        TwinVisitor(
            trace.visitor,
            [
                (planned, photos[planned.path])
                for planned in delayed(plan_from_requests(trace.path, Path()), trace.phase_s)
            ],
        )
        for trace in traces
    )


def generate_visitors(
    maker: PhotoSource,
    object_ids: Sequence[str],
    following: Following,
    *,
    sections: int,
    edges: int = 1,
    crowd_size: int = 180,
    rng: np.random.Generator,
) -> tuple[tuple[TwinVisitor, ...], list[tuple[str, str]]]:
    """Generate visitors, assigned to the edges in turn, and the requests of earlier visitors.

    If there are more devices than walks of ``crowd_size`` visitors, walks are used several times, each time
    with other photos.

    Returns
    -------
    visitors, transitions
    """
    visits = generate_visits(rng, sections=sections, visitors=crowd_size)
    crowd = Crowd.divided(visits, rng)
    objects = crowd.mapped(object_ids)
    names = {name: [name] for name in object_ids}
    visitors: list[TwinVisitor] = []
    while len(visitors) < following.devices:
        some = min(following.devices - len(visitors), crowd_size // 10)
        group = Following(some, following.seconds, following.unknown_share)
        for name, asked in follow(crowd, group, objects, names, ["unknown"], rng).items():
            start_ms, phase_s = asked[0].time_ms, float(rng.random())
            plan = [
                (
                    PlannedPhoto(
                        phase_s + (one.time_ms - start_ms) / 1e3, one.object_id, Path(one.image_path)
                    ),
                    maker.photo(one.object_id),
                )
                for one in asked
            ]
            number = len(visitors)
            visitors.append(TwinVisitor(f"{name}-{number}", plan, number % edges))
    return tuple(visitors), crowd.transitions(objects)
