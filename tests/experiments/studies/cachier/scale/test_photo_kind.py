"""What the visitors' photos are like, as a value and as a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearsight.common.errors import CorruptStore
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.cachier.scale.operating_point import BASELINE
from nearsight.experiments.studies.cachier.scale.photo_kind import PhotoKind
from nearsight.experiments.studies.cachier.scale.twin_runs import Visiting, twin_session
from nearsight.experiments.twin.cost_model import CostModel
from nearsight.experiments.twin.photos import AS_ANY_PHOTO, NEVER, Effort, TwinPhoto
from nearsight.experiments.twin.session import Hardware

EASY = TwinPhoto(
    "0001",
    20_000,
    200.0,
    at_second_look=True,
    missed_with=frozenset({600}),
    device_efforts=((800, Effort(0.7, 0.4, None)),),
    tier_effort=Effort(0.7, 0.5, 2.6),
)
HOPELESS = TwinPhoto("0002", 60_000, NEVER, at_second_look=False, second_effort=0.8)
OF_NUMBERS = PhotoKind.of(CostModel.assumed())
SAMPLED = OF_NUMBERS.model_copy(update={"sample": ((19.0, EASY), (1.0, HOPELESS)), "measured_over": "x"})


def plans(photos: PhotoKind, seed: int, run: int) -> list[object]:
    """What all visitors of a session send."""
    point = replace(BASELINE, visitors=2, sections=1)
    visiting = Visiting(Following(2, 20.0, 0.0), photos)
    session = twin_session(point, run, CostModel.assumed(), Hardware(), visiting, seed)
    return [visitor.plan for visitor in session.visitors]


def test_a_file_says_all_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "photos.json"
    SAMPLED.save(path)
    assert PhotoKind.load(path) == SAMPLED


@pytest.mark.parametrize("change", [{"version": 2}, {"sample": [[0.0, {}]]}, {"sample": [[-1.0, {}]]}])
def test_a_file_of_an_older_version_or_with_nonsense_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / "photos.json"
    SAMPLED.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CorruptStore):
        PhotoKind.load(path)


def test_without_a_sample_all_photos_are_looked_up_in_the_same_time() -> None:
    source = OF_NUMBERS.source(np.random.default_rng(1))
    assert {source.photo("0001").tier_effort for _ in range(20)} == {AS_ANY_PHOTO}


def test_visitors_send_photos_of_the_sample() -> None:
    source = SAMPLED.source(np.random.default_rng(1))
    found = [source.photo("0009") for _ in range(200)]
    assert {photo.tier_effort for photo in found} == {EASY.tier_effort, HOPELESS.tier_effort}


def test_the_same_seed_and_run_give_the_same_photos() -> None:
    assert plans(SAMPLED, 1, 1) == plans(SAMPLED, 1, 1)
    assert plans(SAMPLED, 1, 2) != plans(SAMPLED, 1, 1)
    assert plans(SAMPLED, 2, 1) != plans(SAMPLED, 1, 1)
