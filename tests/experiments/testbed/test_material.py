"""What a part is made from: generated visits, a smaller catalogue, and a digest that notices changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nearsight.cloud.store import CatalogueStore
from nearsight.cloud.training import TrainedObject
from nearsight.common.errors import ConfigurationError, InvalidArgument
from nearsight.experiments.testbed.inventory import DeviceSpec, Inventory, ReplaySpec, ServerSpec
from nearsight.experiments.testbed.material import cut_catalogue, digest_of, visits_of, with_material
from support.gallery import exhibit_models

OBJECTS = tuple(f"exhibit-{number}" for number in range(5))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "museum.db"
    with CatalogueStore(path) as store:
        store.put("museum", [TrainedObject(model, model.object_id, "test") for model in exhibit_models(5)])
    return path


@pytest.fixture
def museum(tmp_path: Path) -> Path:
    folder = tmp_path / "museum"
    for name in ("references", "queries"):
        (folder / name).mkdir(parents=True)
    for name in OBJECTS:
        (folder / "references" / f"{name}.jpg").touch()
        (folder / "queries" / f"{name}.jpg").touch()
    lines = [f"{name}.jpg,{name}" for name in OBJECTS]
    (folder / "labels.csv").write_text("\n".join(["query,object_id", *lines]) + "\n")
    return folder


def objects_in(database: Path) -> list[str]:
    with CatalogueStore(database, create=False) as store:
        return [one.object_id for one in store.objects("museum")]


def test_what_is_on_show_stays_in_a_smaller_catalogue(database: Path, tmp_path: Path) -> None:
    smaller = tmp_path / "smaller.db"
    cut_catalogue(database, smaller, catalogue="museum", keep={"exhibit-4"}, classes=3)
    assert objects_in(smaller) == ["exhibit-0", "exhibit-1", "exhibit-4"]
    assert objects_in(database) == list(OBJECTS)


@pytest.mark.parametrize(
    ("classes", "complaint"),
    [(6, "6 classes: .* has only 5 objects"), (1, "1 classes: 2 objects are on show")],
)
def test_a_number_of_classes_that_cannot_be_is_refused(
    database: Path, tmp_path: Path, classes: int, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        cut_catalogue(database, tmp_path / "x.db", catalogue="museum", keep=set(OBJECTS[:2]), classes=classes)


def test_generated_visitors_see_objects_of_the_data_set_and_each_section_others(museum: Path) -> None:
    spec = ReplaySpec(photos=museum, sections=2, exhibits=2, population=6)
    seen: dict[str, set[str]] = {}
    for visit in visits_of(spec):
        seen.setdefault(visit.visitor, set()).add(visit.exhibit)
    assert len(seen) == 6
    rooms = [set(OBJECTS[:2]), set(OBJECTS[2:4])]
    assert all(any(objects <= room for room in rooms) for objects in seen.values())
    assert visits_of(spec) == visits_of(spec)
    with pytest.raises(InvalidArgument, match="6 exhibits need as many objects, got 5"):
        visits_of(spec.model_copy(update={"sections": 3}))


def test_a_part_gets_its_visits_and_its_catalogue_as_files(
    museum: Path, database: Path, tmp_path: Path
) -> None:
    spec = ReplaySpec(photos=museum, sections=1, exhibits=2, population=2, classes=4)
    inventory = Inventory(
        nodes={},
        cloud=ServerSpec(node="server", files={"database": database}),
        devices={"visitors": DeviceSpec(node="phone")},
        replay=spec,
    )
    changed = with_material(inventory, visits_of(spec), tmp_path / "material")
    assert objects_in(changed.cloud.files["database"]) == list(OBJECTS[:4])
    assert changed.replay is not None
    assert visits_of(changed.replay) == visits_of(spec)


def test_the_digest_changes_with_what_is_in_the_files(museum: Path, database: Path) -> None:
    inventory = Inventory(
        nodes={},
        cloud=ServerSpec(node="server", files={"database": database}),
        replay=ReplaySpec(photos=museum),
    )
    before = digest_of(inventory)
    assert digest_of(inventory) == before
    (museum / "queries" / "exhibit-1.jpg").write_bytes(b"another photo")
    after = digest_of(inventory)
    assert after != before
    database.write_bytes(database.read_bytes() + np.zeros(1, np.uint8).tobytes())
    assert digest_of(inventory) != after
