"""The stored standby: a restart during an outage of the cloud, and no outdated models."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nearsight.common.catalogue.answers import Listing
from nearsight.common.errors import CorruptStore, DiskUnavailable
from nearsight.common.recognition.codec import model_digest
from nearsight.common.recognition.models import ObjectModel
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.catalogue_caches import CatalogueCaches
from nearsight.edge.standby import standbys
from nearsight.edge.standby.store import StandbyStore
from nearsight.protos.catalogue_pb2 import ObjectSummary
from support.edge import CATALOGUE, EXHIBITS, ScriptedCloud, Serve, cache_of, exhibit, photo, wait_for_standby
from support.waiting import LONG_S, wait_until

pytestmark = pytest.mark.usefixtures("eager_standbys")


@pytest.fixture
def state(tmp_path: Path, serve: Serve, cloud: ScriptedCloud) -> Path:
    """The state of an edge that has stored its standby."""
    path = tmp_path / "edge.db"
    with serve(standby_mb=50, state=path) as (edge, device):
        assert device.ask(photo(77)) == (None, "cloud")  # so nothing is popular
        wait_for_standby(edge, EXHIBITS)
    return path


def test_an_edge_restarted_during_an_outage_answers_from_its_stored_standby(
    state: Path, serve: Serve, cloud: ScriptedCloud
) -> None:
    cloud.stop()
    with serve(standby_mb=50, state=state) as (edge, device):
        wait_for_standby(edge, EXHIBITS)
        assert [device.ask(photo(number))[0] for number in (1, 5, 77)] == ["01", "05", None]
        device.catalogue = ""
        assert device.ask(photo(1)) == ("01", "edge")
        assert edge.ready()


def test_a_listing_is_stored_once_and_not_with_each_batch_of_models(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, write = [], StandbyStore.write

    def noted(self: StandbyStore, catalogue: str, listing: Listing | None, *changes: Any) -> None:
        written.append(listing)
        write(self, catalogue, listing, *changes)

    monkeypatch.setattr(StandbyStore, "write", noted)
    with serve(standby_mb=50, state=tmp_path / "edge.db") as (edge, device):
        device.ask(photo(77))
        wait_for_standby(edge, EXHIBITS)
    assert len(written) > 1
    assert sum(one is not None for one in written) == 1
    with StandbyStore.beside(tmp_path / "edge.db") as store:
        assert len(store.versions(CATALOGUE)) == len(store.listings()[CATALOGUE].versions) == EXHIBITS


def test_a_catalogue_that_was_stored_without_a_name_is_removed(state: Path, serve: Serve) -> None:
    with StandbyStore.beside(state) as store:
        store.write("", store.listings()[CATALOGUE], [], [])
    with serve(standby_mb=50, state=state) as (edge, _):
        stored = edge.standbys._store
        assert stored is not None
        wait_for_standby(edge, EXHIBITS)
        wait_until(lambda: set(stored.listings()) == {CATALOGUE}, what="the removal")
        assert [cache.name for cache in edge.caches.all()] == [CATALOGUE]


def test_a_cache_created_during_a_round_keeps_its_stored_models(
    state: Path, serve: Serve, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt, all_caches, adopted = standbys.Standbys._adopt, CatalogueCaches.all, threading.Event()

    def adopt_and_notify(self: standbys.Standbys, catalogue: str, listing: Listing) -> None:
        adopt(self, catalogue, listing)
        adopted.set()

    def outdated(self: CatalogueCaches) -> tuple[CatalogueCache, ...]:
        found = all_caches(self)
        if threading.current_thread().name == "nearsight-standby":
            assert adopted.wait(LONG_S)
        return found

    monkeypatch.setattr(standbys.Standbys, "_adopt", adopt_and_notify)
    monkeypatch.setattr(CatalogueCaches, "all", outdated)
    cloud.stop()
    with serve(standby_mb=50, state=state) as (edge, device):
        wait_for_standby(edge, EXHIBITS)
        assert device.ask(photo(1)) == ("01", "edge")


def test_a_cache_created_by_the_standby_is_not_replaced_by_a_late_answer(state: Path, serve: Serve) -> None:
    with serve(standby_mb=50, state=state) as (edge, _):
        cache, done = cache_of(edge), threading.Event()

        def answered() -> None:
            edge.caches._admitted(CATALOGUE, cache.listing)
            done.set()

        edge._background.submit(answered)
        assert done.wait(LONG_S)
        assert cache_of(edge) is cache


def test_a_restarted_edge_fetches_no_stored_model(state: Path, serve: Serve, cloud: ScriptedCloud) -> None:
    cloud.fetched.clear()
    with serve(standby_mb=50, state=state) as (edge, device):
        wait_for_standby(edge, EXHIBITS)
        assert device.ask(photo(77)) == (None, "cloud")
    assert cloud.fetched_ids() == []


def test_models_changed_or_removed_between_two_runs_are_updated(
    state: Path, serve: Serve, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    cloud.set_models([exhibit(0, version=2, picture=9), *models[2:]])
    with serve(standby_mb=50, state=state) as (edge, device):
        wait_for_standby(edge, EXHIBITS - 1)
        cloud.stop()
        assert [device.ask(photo(number))[0] for number in (9, 0, 1, 2)] == ["00", None, None, "02"]
    with StandbyStore.beside(state) as store:
        assert store.versions(CATALOGUE) == {"00": 2, "02": 1, "03": 1, "04": 1, "05": 1}


def test_a_recreated_catalogue_is_fetched_again(
    state: Path, serve: Serve, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    """The same ids, versions and revision, other pictures."""
    cloud.set_models([exhibit(number, picture=number + 10) for number in range(EXHIBITS)], bump=False)
    with serve(standby_mb=50, state=state) as (edge, device):
        new = model_digest(exhibit(0, picture=10))

        def renewed() -> bool:
            ours = edge.standbys.get(CATALOGUE)
            model = ours.models.get("00") if ours is not None else None
            return model is not None and model_digest(model) == new

        wait_until(renewed, what="other models")
        wait_for_standby(edge, EXHIBITS)
        cloud.stop()
        assert [device.ask(photo(number))[0] for number in (0, 10, 15)] == [None, "00", "05"]


@pytest.mark.parametrize(
    "damage",
    ["UPDATE models SET model = zeroblob(50)", "UPDATE models SET object_id = 'x' || object_id", ""],
    ids=["damaged models", "damaged ids", "a recreated catalogue"],
)
def test_stored_models_that_cannot_be_used_are_replaced_although_the_cache_has_their_objects(
    state: Path, serve: Serve, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    restore, names = standbys.Standby.restore, [f"{number:02d}" for number in range(EXHIBITS)]

    def restore_after_the_cache(self: standbys.Standby) -> None:
        restore(self)
        self.cache.supply.for_device(names, LONG_S).result(LONG_S)  # the supply has their models now

    monkeypatch.setattr(standbys.Standby, "restore", restore_after_the_cache)
    if damage:
        with StandbyStore.beside(state) as store, store.transaction() as connection:
            connection.execute(damage)
    else:
        cloud.set_models([exhibit(number, picture=number + 10) for number in range(EXHIBITS)], bump=False)
    digests = {name: model_digest(model) for name, model in cloud.recognizer.models.items()}
    with serve(standby_mb=50, state=state) as (edge, _):

        def begun() -> bool:
            ours = edge.standbys.get(CATALOGUE)
            return ours is not None and ours.cache.listing.digests == digests

        wait_until(begun, what="the standby of the present catalogue")
        wait_for_standby(edge, EXHIBITS)
    with StandbyStore.beside(state) as store:
        listing = store.listings()[CATALOGUE]
        assert sorted(one.object_id for one in store.models(CATALOGUE, listing)) == names
        assert sorted(store.versions(CATALOGUE)) == names


def test_the_models_of_a_removed_catalogue_are_deleted(
    state: Path, serve: Serve, cloud: ScriptedCloud
) -> None:
    cloud.hidden = True
    with serve(standby_mb=50, state=state) as (edge, _):
        store = edge.standbys._store
        assert store is not None
        wait_until(lambda: not store.listings(), what="the deletion")
        assert edge.standbys.get(CATALOGUE) is None
    with StandbyStore.beside(state) as store:
        assert (store.listings(), store.versions(CATALOGUE)) == ({}, {})


def test_the_models_of_a_removed_catalogue_are_deleted_as_soon_as_the_file_can_be_written(
    state: Path, serve: Serve, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, refused = StandbyStore.remove, threading.Event()

    def refuse(self: StandbyStore, catalogue: str) -> None:
        if not refused.is_set():
            refused.set()
            raise DiskUnavailable("the disk is full")
        remove(self, catalogue)

    monkeypatch.setattr(StandbyStore, "remove", refuse)
    cloud.hidden = True
    with serve(standby_mb=50, state=state) as (edge, _):
        store = edge.standbys._store
        assert store is not None
        wait_until(lambda: not store.listings(), what="the deletion")
        assert refused.is_set()


def test_a_standby_is_filled_although_its_stored_models_cannot_be_read(
    state: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = Mock(side_effect=CorruptStore("the database disk image is malformed"))
    monkeypatch.setattr(StandbyStore, "models", unreadable)
    with serve(standby_mb=50, state=state) as (edge, _):
        wait_for_standby(edge, EXHIBITS)
    assert unreadable.called


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: bytes(5000),
        lambda data: b"\x5a" * 4096 + data[4096:],
        lambda data: data[:60] + bytes(4) + data[64:],
    ],
    ids=["zeros", "first page overwritten", "version lost"],
)
def test_a_damaged_file_is_moved_aside_and_the_models_fetched_again(
    state: Path, serve: Serve, damage: Callable[[bytes], bytes]
) -> None:
    file = state.with_name("edge-standby.db")
    file.write_bytes(damage(file.read_bytes()))
    with serve(standby_mb=50, state=state) as (edge, device):
        device.ask(photo(0))
        wait_for_standby(edge, EXHIBITS)
    assert list(state.parent.glob("edge-standby.db.damaged*"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StandbyStore]:
    with StandbyStore.beside(tmp_path / "edge.db") as store:
        yield store


def listing_of(*models: ObjectModel) -> Listing:
    entries = tuple(
        ObjectSummary(object_id=one.object_id, version=one.version, model_digest=model_digest(one))
        for one in models
    )
    return Listing({one.object_id: one.version for one in models}, 7, entries)


def test_models_that_differ_from_the_listing_or_are_damaged_are_not_loaded(
    store: StandbyStore, models: list[ObjectModel]
) -> None:
    listing = listing_of(*models[:3])
    store.write("museum", listing, models[:3], ())
    assert [one.object_id for one in store.models("museum", listing)] == ["00", "01", "02"]
    assert store.listings() == {"museum": listing}
    other = listing_of(exhibit(0, picture=9), *models[1:3])
    assert [one.object_id for one in store.models("museum", other)] == ["01", "02"]
    with store.transaction() as connection:
        connection.execute("UPDATE models SET model = zeroblob(50) WHERE object_id = '01'")
    assert [one.object_id for one in store.models("museum", listing)] == ["00", "02"]


def test_listings_with_different_models_of_one_version_contradict_each_other(
    models: list[ObjectModel],
) -> None:
    listing = listing_of(*models[:2])
    assert listing.contradicts(listing_of(exhibit(0, picture=9)))
    assert not listing.contradicts(listing_of(exhibit(0, version=2, picture=9), models[1], models[2]))
    assert not listing.contradicts(listing_of())


def test_removing_a_catalogue_deletes_its_models(store: StandbyStore, models: list[ObjectModel]) -> None:
    store.write("museum", listing_of(*models[:1]), models[:1], ())
    store.write("zoo", listing_of(*models[:1]), models[:1], ())
    store.remove("museum")
    assert list(store.listings()) == ["zoo"]
    assert store.versions("museum") == {}
