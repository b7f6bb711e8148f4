"""The sample of a museum's photos."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nearsight.experiments.datasets.dataset import Dataset, Query, Reference
from nearsight.experiments.studies.cachier.scale.photo_sample import (
    chosen_of,
    mark_of,
    measure_kind,
    weights_of,
)
from nearsight.experiments.twin.cost_model import CostModel, slowed
from nearsight.experiments.twin.photos import NEVER, TwinPhoto
from support.pictures import photo_jpeg, picture_jpeg

COSTS = CostModel.assumed()


def of_hardness(*counts: tuple[float, int]) -> dict[Path, TwinPhoto]:
    """So many photos that need so many features."""
    return {
        Path(f"{least}-{number}"): TwinPhoto("a", 1000, least, at_second_look=least != NEVER)
        for least, count in counts
        for number in range(count)
    }


def test_of_easy_photos_some_are_measured_and_of_hard_ones_all() -> None:
    seen = of_hardness((200.0, 300), (800.0, 7), (NEVER, 3))
    chosen = chosen_of(seen, np.random.default_rng(1))
    assert Counter(seen[path].least_features for path in chosen) == {200.0: 80, 800.0: 7, NEVER: 3}


def test_each_class_of_hardness_weighs_as_much_as_among_all_photos() -> None:
    exhibited, all_ = of_hardness((200.0, 300), (NEVER, 3)), of_hardness((200.0, 700), (NEVER, 40))
    chosen = chosen_of(exhibited, np.random.default_rng(1))
    weights: Counter[float] = Counter()
    for path, weight in weights_of(chosen, all_).items():
        weights[all_[path].least_features] += weight  # type: ignore[assignment]
    assert weights[200.0] == pytest.approx(700)
    assert weights[NEVER] == pytest.approx(40)


def test_efforts_over_other_profiles_are_told_apart() -> None:
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
    assert all(photo.known_with(800) for _, photo in kind.sample[:2])
    assert {count for count, _ in kind.sample[0][1].device_efforts} == {200, 400, 600, 800}
    assert kind.measured_over == mark_of(COSTS)
