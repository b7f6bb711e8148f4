from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.cloud.catalogues import Catalogues
from nearsight.cloud.store import CatalogueStore
from nearsight.cloud.training import TrainedObject
from nearsight.common.errors import InvalidArgument, NotFound, Overloaded, Unavailable
from nearsight.common.recognition.settings import RecognitionSettings
from support.objects import random_model
from support.waiting import wait_until


def trained(object_id: str, seed: int = 0) -> TrainedObject:
    return TrainedObject(random_model(object_id, seed), f"hash {seed}", "t")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cloud.db"


@pytest.fixture
def catalogues(path: Path) -> Iterator[Catalogues]:
    with CatalogueStore(path) as store:
        served = Catalogues(store, RecognitionSettings(), poll_interval_s=0.01)
        yield served
        served.stop()


def test_before_loading_everything_is_unavailable(catalogues: Catalogues) -> None:
    for call in (catalogues.get, catalogues.get_or_create, catalogues.check_name):
        with pytest.raises(Unavailable):
            call("museum")
    assert catalogues.loading


def test_all_catalogues_of_the_file_are_loaded(catalogues: Catalogues) -> None:
    catalogues.store.put("museum", [trained("a")])
    catalogues.store.put("shop", [trained("b")])
    catalogues.load()
    assert [live.name for live in catalogues.all()] == ["museum", "shop"]
    assert catalogues.get("shop").recognizer.object_ids == {"b"}


def test_an_empty_name_means_the_only_catalogue(catalogues: Catalogues) -> None:
    catalogues.load()
    with pytest.raises(NotFound, match="no catalogue was named"):
        catalogues.get("")
    with pytest.raises(NotFound):
        catalogues.get_or_create("")
    museum = catalogues.get_or_create("museum")
    assert catalogues.get("") is catalogues.get_or_create("") is catalogues.get_or_create("museum") is museum
    catalogues.get_or_create("shop")
    with pytest.raises(InvalidArgument) as caught:
        catalogues.get_or_create("")
    assert "museum, shop" in caught.value.advice


def test_an_unknown_name_is_not_found_and_a_wrong_one_cannot_begin(catalogues: Catalogues) -> None:
    catalogues.load()
    catalogues.get_or_create("museum")
    with pytest.raises(NotFound) as caught:
        catalogues.get("shop")
    assert "museum" in caught.value.advice
    with pytest.raises(InvalidArgument):
        catalogues.get_or_create("../shop")


def test_what_another_process_writes_is_served(catalogues: Catalogues, path: Path) -> None:
    catalogues.store.put("museum", [trained("a"), trained("b")])
    catalogues.load()
    with CatalogueStore(path) as other:
        other.put("museum", [trained("c")])
        other.remove("museum", ["a"])
        other.put("shop", [trained("z")])
    wait_until(lambda: catalogues.get("museum").recognizer.object_ids == {"b", "c"}, what="refresh")
    wait_until(lambda: len(catalogues.all()) == 2, what="the new catalogue")
    wait_until(lambda: catalogues.get("shop").recognizer.object_ids == {"z"}, what="its index")


def test_a_failed_poll_is_told_and_tried_again(
    catalogues: Catalogues, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogues.store.put("museum", [trained("a")])
    catalogues.load()
    with monkeypatch.context() as patch:

        def busy() -> int:
            raise Overloaded("the database is busy")

        patch.setattr(catalogues.store, "data_version", busy)
        wait_until(lambda: "busy" in catalogues.problem, what="the problem")
    with CatalogueStore(path) as other:
        other.put("museum", [trained("b")])
    wait_until(lambda: catalogues.get("museum").recognizer.object_ids == {"a", "b"}, what="refresh")
    wait_until(lambda: catalogues.problem == "", what="the end of the problem")
