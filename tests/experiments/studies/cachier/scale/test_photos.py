"""Properties of the visitors' photos: sampling, the file, and the measurement of a museum's photos."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearsight.common.catalogue.reference_folder import Reference
from nearsight.common.errors import CorruptStore
from nearsight.experiments.datasets.dataset import Dataset, Query
from nearsight.experiments.rig.walks import Following
from nearsight.experiments.studies.cachier.scale.operating_point import BASELINE
from nearsight.experiments.studies.cachier.scale.photos import (
    PhotoKind,
    chosen_of,
    mark_of,
    measure_kind,
    weights_of,
)
from nearsight.experiments.studies.cachier.scale.sessions import twin_session
from nearsight.experiments.twin.cost_model import slowed
from nearsight.experiments.twin.photos import AS_ANY_PHOTO, NEVER, Effort, TwinPhoto
from support.pictures import photo_jpeg, picture_jpeg
from support.scale_rows import ASSUMED as COSTS
from support.scale_rows import MACHINES

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
OF_NUMBERS = MACHINES.photos
SAMPLED = OF_NUMBERS.model_copy(update={"sample": ((19.0, EASY), (1.0, HOPELESS)), "measured_over": "x"})


def plans(photos: PhotoKind, seed: int, run: int) -> list[object]:
    """Plans of all visitors of a session."""
    point = replace(BASELINE, visitors=2, sections=1)
    machines = replace(MACHINES, photos=photos)
    session = twin_session(point, run, machines, seed, Following(2, 20.0, 0.0), crowd=180)
    return [visitor.plan for visitor in session.visitors]


def test_photos_are_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "photos.json"
    SAMPLED.save(path)
    assert PhotoKind.load(path) == SAMPLED


@pytest.mark.parametrize("change", [{"version": 2}, {"sample": [[0.0, {}]]}, {"sample": [[-1.0, {}]]}])
def test_a_file_of_an_older_version_or_with_invalid_weights_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / "photos.json"
    SAMPLED.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CorruptStore):
        PhotoKind.load(path)


def test_without_a_sample_all_photos_have_the_same_effort() -> None:
    source = OF_NUMBERS.source(np.random.default_rng(1))
    assert {source.photo("0001").tier_effort for _ in range(20)} == {AS_ANY_PHOTO}


def test_photos_are_drawn_from_the_sample() -> None:
    source = SAMPLED.source(np.random.default_rng(1))
    found = [source.photo("0009") for _ in range(200)]
    assert {photo.tier_effort for photo in found} == {EASY.tier_effort, HOPELESS.tier_effort}


@pytest.mark.system
def test_the_same_seed_and_run_give_the_same_photos() -> None:
    assert plans(SAMPLED, 1, 1) == plans(SAMPLED, 1, 1)
    assert plans(SAMPLED, 1, 2) != plans(SAMPLED, 1, 1)
    assert plans(SAMPLED, 2, 1) != plans(SAMPLED, 1, 1)


def of_hardness(*counts: tuple[float, int]) -> dict[Path, TwinPhoto]:
    """Photos by the number of features that they need: pairs of that number and a count."""
    return {
        Path(f"{least}-{number}"): TwinPhoto("a", 1000, least, at_second_look=least != NEVER)
        for least, count in counts
        for number in range(count)
    }


def test_some_easy_photos_and_all_hard_ones_are_measured() -> None:
    seen = of_hardness((200.0, 300), (800.0, 7), (NEVER, 3))
    chosen = chosen_of(seen, np.random.default_rng(1))
    assert Counter(seen[path].least_features for path in chosen) == {200.0: 80, 800.0: 7, NEVER: 3}


def test_weights_of_measured_photos_are_those_of_all_photos() -> None:
    exhibited, all_ = of_hardness((200.0, 300), (NEVER, 3)), of_hardness((200.0, 700), (NEVER, 40))
    chosen = chosen_of(exhibited, np.random.default_rng(1))
    weights: Counter[float] = Counter()
    for path, weight in weights_of(chosen, all_).items():
        weights[all_[path].least_features] += weight  # type: ignore[assignment]
    assert weights[200.0] == pytest.approx(700)
    assert weights[NEVER] == pytest.approx(40)


def test_the_mark_of_efforts_changes_with_the_profiles() -> None:
    slower = COSTS.model_copy(update={"edge": slowed(COSTS.edge, 2.0)})
    assert mark_of(slower) != mark_of(COSTS)
    assert mark_of(COSTS.model_copy(update={"call_ms": 3.0})) == mark_of(COSTS)


def test_every_photo_of_a_small_museum_is_in_its_sample(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.jpg" for name in ("1", "2", "photo-1", "photo-2", "strange")}
    for name, path in paths.items():
        seed = {"strange": 77}.get(name) or int(name[-1])
        path.write_bytes(photo_jpeg(seed) if name not in "12" else picture_jpeg(seed))
    references = tuple(Reference(name, name, (paths[name],)) for name in "12")
    queries = (*(Query(paths[f"photo-{name}"], name) for name in "12"), Query(paths["strange"], None))
    kind = measure_kind(Dataset("small", references, queries), COSTS, 1, lambda _line: None)
    assert [photo.object_id for _, photo in kind.sample] == ["1", "2", ""]
    assert all(photo.recognised_with(800) for _, photo in kind.sample[:2])
    assert {count for count, _ in kind.sample[0][1].device_efforts} == {200, 400, 600, 800}
    assert kind.measured_over == mark_of(COSTS)
