import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nearsight.cloud.catalogues import Catalogues
from nearsight.common.catalogue import live_catalogue
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import TrainedObject
from nearsight.common.errors import InvalidArgument, NotFound, Overloaded, Unavailable
from nearsight.common.recognition.settings import RecognitionSettings
from support.objects import random_model
from support.waiting import LONG_S, wait_until


def trained(object_id: str, seed: int = 0) -> TrainedObject:
    pictures = 1000 * seed + ord(object_id[-1])  # another for each object
    return TrainedObject(random_model(object_id, pictures), f"hash {seed}", "t")


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
    for call in (catalogues.get, catalogues.remove, catalogues.check_name):
        with pytest.raises(Unavailable):
            call("museum")
    with pytest.raises(Unavailable):
        catalogues.put("museum", [trained("a")])
    assert catalogues.loading


def test_all_catalogues_of_the_file_are_loaded(catalogues: Catalogues) -> None:
    catalogues.store.put("museum", [trained("a")])
    catalogues.store.put("shop", [trained("b")])
    catalogues.load()
    assert [live.name for live in catalogues.all()] == ["museum", "shop"]
    assert catalogues.get("shop").recognizer.object_ids == {"b"}


def test_a_catalogue_that_another_process_removes_during_the_loading_is_left_out(
    catalogues: Catalogues, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogues.store.put("museum", [trained("a")])
    catalogues.store.put("shop", [trained("b")])
    changes_since = catalogues.store.changes_since

    def removed_meanwhile(name: str, *rest: Any) -> Any:
        if name == "shop":
            with CatalogueStore(path) as other:
                other.remove_catalogue("shop")
        return changes_since(name, *rest)

    monkeypatch.setattr(catalogues.store, "changes_since", removed_meanwhile)
    catalogues.load()
    assert [live.name for live in catalogues.all()] == ["museum"]
    assert not catalogues.loading


def test_an_empty_name_means_the_only_catalogue(catalogues: Catalogues) -> None:
    catalogues.load()
    with pytest.raises(NotFound, match="no catalogue was named"):
        catalogues.get("")
    with pytest.raises(NotFound):
        catalogues.put("", [trained("a")])
    _, museum = catalogues.put("museum", [trained("a")])
    assert catalogues.get("") is catalogues.put("", [trained("b")])[1] is museum
    catalogues.put("shop", [trained("c")])
    with pytest.raises(InvalidArgument) as caught:
        catalogues.put("", [trained("d")])
    assert "museum, shop" in caught.value.advice


def test_an_unknown_name_is_not_found_and_a_wrong_one_cannot_begin(catalogues: Catalogues) -> None:
    catalogues.load()
    catalogues.put("museum", [trained("a")])
    with pytest.raises(NotFound) as caught:
        catalogues.get("shop")
    assert "museum" in caught.value.advice
    with pytest.raises(InvalidArgument):
        catalogues.put("../shop", [trained("a")])


def test_catalogues_are_bounded_and_those_of_the_file_all_serve(path: Path) -> None:
    with CatalogueStore(path) as store:
        for name in ("museum", "shop", "zoo"):
            store.put(name, [trained("a")])
    with CatalogueStore(path, max_catalogues=2) as store:
        served = Catalogues(store, RecognitionSettings())
        served.load()
        threads = threading.active_count()
        for number in range(20):
            with pytest.raises(InvalidArgument, match="there are 3, and the limit is 2"):
                served.put(f"forged-{number}", [trained("a")])
        assert threading.active_count() <= threads
        assert served.put("zoo", [trained("b")])[0].added == ("b",)
        served.remove("zoo")
        served.remove("shop")
        served.put("garden", [trained("b")])
        assert [live.name for live in served.all()] == ["garden", "museum"]
        served.stop()


def test_a_failed_write_creates_no_catalogue(catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogues.load()

    def full(*_: object, at: int) -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(catalogues.store, "put", full)
    with pytest.raises(Unavailable):
        catalogues.put("museum", [trained("a")])
    assert catalogues.all() == ()


def test_a_removed_catalogue_can_be_created_again(catalogues: Catalogues) -> None:
    catalogues.load()
    catalogues.put("museum", [trained("a"), trained("b")])
    assert catalogues.remove("museum") == 2
    with pytest.raises(NotFound):
        catalogues.get("museum")
    with pytest.raises(NotFound):
        catalogues.remove("museum")
    outcome, live = catalogues.put("museum", [trained("a", 1)])
    assert live.when_current(outcome.revision).result(LONG_S) == outcome.revision == 3
    assert catalogues.get("museum").recognizer.object_ids == {"a"}


def test_a_put_into_a_catalogue_that_is_removed_and_created_again_in_the_meantime_stores_nothing(
    catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogues.load()
    catalogues.put("museum", [trained("a")])
    compare = live_catalogue.compare

    def slow_compare(new: Sequence[TrainedObject], *rest: Any, **options: Any) -> Any:
        monkeypatch.undo()
        catalogues.remove("museum")
        catalogues.put("museum", [trained("b")])
        return compare(new, *rest, **options)

    monkeypatch.setattr(live_catalogue, "compare", slow_compare)
    with pytest.raises(Unavailable, match="was removed"):
        catalogues.put("museum", [trained("c")])
    assert [one.object_id for one in catalogues.store.objects("museum")] == ["b"]
    outcome, live = catalogues.put("museum", [trained("c")])
    live.when_current(outcome.revision).result(LONG_S)
    assert live.recognizer.object_ids == {"b", "c"}


def test_a_catalogue_removed_by_another_process_is_removed(catalogues: Catalogues, path: Path) -> None:
    catalogues.store.put("museum", [trained("a")])
    catalogues.store.put("shop", [trained("b")])
    catalogues.load()
    with CatalogueStore(path) as other:
        other.remove_catalogue("shop")
    wait_until(lambda: [live.name for live in catalogues.all()] == ["museum"], what="the removal")


def test_changes_of_another_process_are_served(catalogues: Catalogues, path: Path) -> None:
    catalogues.store.put("museum", [trained("a"), trained("b")])
    catalogues.load()
    with CatalogueStore(path) as other:
        other.put("museum", [trained("c")])
        other.remove("museum", ["a"])
        other.put("shop", [trained("z")])
    wait_until(lambda: catalogues.get("museum").recognizer.object_ids == {"b", "c"}, what="refresh")
    wait_until(lambda: len(catalogues.all()) == 2, what="the new catalogue")
    wait_until(lambda: catalogues.get("shop").recognizer.object_ids == {"z"}, what="its index")


def test_a_failed_poll_is_reported_and_repeated(
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
