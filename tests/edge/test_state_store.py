"""The stored state of the edge: restarts, ageing, damaged files and faults of the disk."""

import dataclasses
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from nearsight.common.clock import ManualClock
from nearsight.common.errors import (
    ConfigurationError,
    CorruptStore,
    DatabaseInUse,
    DiskUnavailable,
    ForeignStore,
    NearsightError,
)
from nearsight.common.object_cache.markov import MarkovChanges, MarkovModel, MarkovSettings, TransitionCount
from nearsight.edge import state_store
from nearsight.edge.profiler import Measured
from nearsight.edge.request_distribution import (
    DistributionEstimator,
    PopularityChanges,
    RequestDistribution,
    StoredCount,
)
from nearsight.edge.state_store import Changes, StateStore
from nearsight.protos.health_pb2 import HealthRequest
from support.caching import profile_of_table_3_2
from support.disks import allow_writes, full_disk, refuse_writes, small_disk
from support.edge import ScriptedCloud, cache_of, photo, serving, warm
from support.waiting import LONG_S, wait_until

MEASURED = Measured(
    miss_ms=120.0, correction=1.5, image_share=0.5, extraction_ms=9.0, profile=profile_of_table_3_2()
)


def changes(counts: dict[str, float], *transitions: TransitionCount) -> dict[str, Changes]:
    return {"museum": Changes(PopularityChanges((), counts), MarkovChanges((), transitions), MEASURED)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "edge.db"


def test_a_written_state_is_read_by_the_next_run(path: Path) -> None:
    with StateStore(path, ManualClock()) as store:
        store.write(changes({"a": 3.0, "b": 1.5}, TransitionCount(("a",), "b", 2.0)))
    with StateStore(path, ManualClock()) as store:
        assert store.catalogues() == ("museum",)
        learnt = store.load("museum")
        assert set(learnt.popularity) == {StoredCount("a", 3.0), StoredCount("b", 1.5)}
        assert tuple(learnt.transitions) == (TransitionCount(("a",), "b", 2.0),)
        assert learnt.measured == MEASURED
        assert not store.load("another").popularity


def test_ages_are_times_of_operation(path: Path) -> None:
    clock = ManualClock(1000.0)
    with StateStore(path, clock) as store:
        store.write(changes({"a": 3.0}))
        clock.advance(60.0)
        store.write(changes({"b": 1.0}))
    night = ManualClock(7.0)  # after a reboot
    with StateStore(path, night) as store:
        night.advance(5.0)
        ages = {stored.object_id: stored.age_s for stored in store.load("museum").popularity}
        assert ages == pytest.approx({"a": 65.0, "b": 5.0})


def test_dropped_counts_and_removed_objects_are_deleted_from_the_file(path: Path) -> None:
    with StateStore(path, ManualClock()) as store:
        store.write(
            changes(
                {"a": 3.0, "b": 1.0},
                TransitionCount(("a",), "b", 2.0),
                TransitionCount(("b",), "a", 1.0),
                TransitionCount((), "c", 1.0),
                TransitionCount(("c",), "d", 1.0),
                TransitionCount(("b", "e"), "c", 1.0),
            )
        )
        gone = MarkovChanges(("a", "e"), (TransitionCount(("c",), "d", 0.0),))
        statements: list[str] = []
        store._connection.set_trace_callback(statements.append)
        store.write({"museum": Changes(PopularityChanges(("a", "e")), gone)})
        passes = [one for one in statements if "DELETE FROM transitions" in one and "json_each" in one]
        assert len(passes) == 1, "reading all transitions once per object takes minutes"
        learnt = store.load("museum")
        assert [stored.object_id for stored in learnt.popularity] == ["b"]
        assert [one.object_id for one in learnt.transitions] == ["c"]
        assert learnt.measured == MEASURED


def test_a_restored_estimate_is_equal_to_the_stored_one(path: Path) -> None:
    clock = ManualClock()

    def estimator() -> DistributionEstimator:
        distribution = RequestDistribution("abcdef", half_life_s=600.0)
        return DistributionEstimator(distribution, clock, journal=True)

    first, store = estimator(), StateStore(path, clock)
    with store:
        for name in "aaabbc":
            first.count(name)
            clock.advance(100.0)
            store.write({"museum": Changes(first.changes())})
        before = first.ranking().probabilities
    with StateStore(path, clock) as store:
        again = estimator()
        assert again.restore(store.load("museum").popularity) == 3
        assert again.ranking().probabilities == pytest.approx(before)
        assert again.ranking().seen == 3


def test_a_restored_markov_model_makes_the_same_predictions(path: Path) -> None:
    clock = ManualClock()
    model = MarkovModel("abcdef", MarkovSettings(order=2), journal=True)
    with StateStore(path, clock) as store:
        for name in "abcabdabcaf":
            model.observe("device", name, clock.monotonic())
            store.write({"museum": Changes(transitions=model.changes(clock.monotonic()))})
    with StateStore(path, clock) as store:
        again = MarkovModel("abcdef", MarkovSettings(order=2))
        again.restore(store.load("museum").transitions, 0.0)
        for history in ("a", "b", ("c", "a")):
            first, second = model.next_objects(history, 0.0), again.next_objects(history, 0.0)
            assert first.object_ids == second.object_ids
            assert first.probabilities == pytest.approx(second.probabilities)


def test_changes_of_a_failed_write_are_reported_again() -> None:
    clock = ManualClock()
    estimator = DistributionEstimator(RequestDistribution("abc"), clock, journal=True)
    estimator.count("a")
    lost = estimator.changes()
    assert estimator.changes() == PopularityChanges()
    estimator.redo(lost)
    estimator.count("b")
    assert estimator.changes().counts == {"a": 1.0, "b": 1.0}
    estimator.set_objects("bc")
    assert estimator.changes().removed_objects == ("a",)


def test_a_second_edge_on_the_same_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hasty = dataclasses.replace(state_store.FORMAT, busy_timeout_s=0.01)
    monkeypatch.setattr(state_store, "FORMAT", hasty)
    with StateStore(path, ManualClock()) as store:
        store.write(changes({"a": 3.0}))
        with pytest.raises(DatabaseInUse, match="in use by another process; name another file"):
            StateStore(path, ManualClock())
    StateStore(path, ManualClock()).close()


def damaged(path: Path, damage: Callable[[bytes], bytes]) -> bytes:
    """Create a damaged file of state; returns its bytes."""
    with StateStore(path, ManualClock()) as store:
        store.write(changes({f"object {number}": 3.0 for number in range(2000)}))
    path.write_bytes(damage(path.read_bytes()))
    return path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"this is no database" * 100,
        lambda data: data[:68] + b"abcd" + data[72:],
        lambda data: data[:60] + (99).to_bytes(4, "big") + data[64:],
    ],
    ids=["another file", "another application", "a newer version"],
)
def test_a_file_of_another_application_is_refused_and_unchanged(
    path: Path, damage: Callable[[bytes], bytes]
) -> None:
    before = damaged(path, damage)
    with pytest.raises(ForeignStore, match=r"edge\.db"):
        StateStore.open_or_replace(path, ManualClock())
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.damaged*"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:100] + bytes(len(data) - 100),
        lambda data: bytes(len(data)),
        lambda data: data[: len(data) // 2],
        lambda data: data[:10],
        lambda data: data[:50],
        lambda data: data[:60] + bytes(4) + data[64:],
        lambda data: data.replace(b"object_id TEXT", b"object_\xff\xfe TEXT"),
        lambda data: data.replace(b"operated_s REAL", b"operated_z REAL"),
        lambda data: data.replace(b"CREATE TABLE popularity", b"CREATE TABLE \xffopularity"),
    ],
    ids=[
        "zeros after the header",
        "zeros",
        "cut off",
        "10 bytes",
        "50 bytes",
        "version lost",
        "invalid text",
        "a column lost",
        "a table lost",
    ],
)
def test_a_damaged_file_is_moved_aside_and_replaced(path: Path, damage: Callable[[bytes], bytes]) -> None:
    before = damaged(path, damage)
    with capture_logs() as logs, StateStore.open_or_replace(path, ManualClock()) as store:
        assert store.catalogues() == ()
        store.write(changes({"a": 3.0}))
        aside = store.damaged
    assert aside == path.with_name("edge.db.damaged")
    assert aside.read_bytes() == before
    assert [(line["event"], line["damaged"]) for line in logs] == [
        ("a damaged file was replaced", str(aside))
    ]
    with StateStore.open_or_replace(path, ManualClock()) as store:
        assert (store.catalogues(), store.damaged) == (("museum",), None)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE popularity SET count = -1",
        "UPDATE transitions SET history = 'no list'",
        "UPDATE transitions SET history = '[1]'",
        "UPDATE measured SET content = '{}'",
        "UPDATE operation SET operated_s = 'long'",
        "UPDATE operation SET operated_s = 9e999",
        "UPDATE transitions SET operated_s = -9e999",
    ],
)
def test_a_file_with_invalid_values_is_moved_aside(path: Path, statement: str) -> None:
    with StateStore(path, ManualClock()) as store:
        store.write(changes({"a": 3.0}, TransitionCount(("a",), "b", 2.0)))
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with StateStore.open_or_replace(path, ManualClock()) as store:
        assert store.damaged == path.with_name("edge.db.damaged")


def test_invalid_text_loses_one_object_only(path: Path) -> None:
    damaged(path, lambda data: data.replace(b"object 999", b"object 99\xff"))
    with StateStore.open_or_replace(path, ManualClock()) as store:
        assert store.damaged is None
        known = {one.object_id for one in store.load("museum").popularity}
    assert len(known) == 2000
    assert "object 998" in known
    assert "object 999" not in known


def test_an_edge_starts_with_a_damaged_file_and_reports_it(path: Path, cloud: ScriptedCloud) -> None:
    path.write_bytes(bytes(8192))
    with serving(cloud, state=path) as (edge, device):
        warm(edge, device, [0])
        details = {
            one.name: one.value
            for one in device.health.check(HealthRequest(), timeout_s=LONG_S).message.details
        }
        assert "the damaged file is" in details["state"]
        assert "edge.db.damaged" in details["state"]


def test_a_deleted_file_is_detected_and_its_content_rescued(path: Path, cloud: ScriptedCloud) -> None:
    with serving(cloud, state=path, state_every_s=0.01) as (edge, device):
        warm(edge, device, [0])
        wait_until(lambda: b"museum00" in path.with_name("edge.db-wal").read_bytes(), what="a count")
        path.unlink()
        device.ask(photo(0))
        wait_until(lambda: "was deleted" in edge.caches.journal_problem, what="the problem")
    with StateStore(path.with_name("edge.db.rescued"), ManualClock()) as store:
        assert store.catalogues() == ("museum",)


def test_an_edge_starts_on_a_full_disk_and_stores_its_state_later(path: Path, cloud: ScriptedCloud) -> None:
    with ExitStack() as stack:
        with full_disk():
            edge, device = stack.enter_context(serving(cloud, state=path, state_every_s=0.01))
            warm(edge, device, [0])
            wait_until(lambda: str(path) in edge.caches.journal_problem, what="the problem")
        wait_until(lambda: not edge.caches.journal_problem, what="the next write")
    with StateStore(path, ManualClock()) as store:
        assert store.load("museum").popularity


def test_a_restarted_edge_creates_the_caches_of_all_stored_catalogues_that_the_cloud_has(
    path: Path, cloud: ScriptedCloud
) -> None:
    learnt = Changes(PopularityChanges((), {"05": 7.0}))
    with StateStore(path, ManualClock()) as store:
        store.write({"a removed one": learnt, "museum": learnt})
    with serving(cloud, state=path, catalogues_max=1) as (edge, _):
        assert "05" in cache_of(edge).estimator.counts()


@pytest.mark.parametrize("error", [CorruptStore("damaged"), DiskUnavailable("the disk fails")])
def test_a_cache_whose_state_cannot_be_read_starts_without_it(
    path: Path, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch, error: NearsightError
) -> None:
    monkeypatch.setattr(StateStore, "load", Mock(side_effect=error))
    with serving(cloud, state=path) as (edge, device):
        device.ask(photo(0))
        assert cache_of(edge).listing.versions


def test_without_its_folder_a_state_is_refused(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no folder"):
        StateStore(path / "nowhere" / "edge.db", ManualClock())


@pytest.mark.system
@pytest.mark.needs("mounts")
@pytest.mark.parametrize("known", [False, True], ids=["a new file", "a file of an earlier run"])
@pytest.mark.parametrize("disk", ["read-only", "full"])
def test_an_edge_serves_on_a_disk_that_cannot_be_written_and_stores_its_state_later(
    tmp_path: Path, cloud: ScriptedCloud, disk: str, known: bool
) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    path = place / "edge.db"
    with small_disk(place):
        if known:
            with StateStore(path, ManualClock()) as store:
                store.write({"museum": Changes(PopularityChanges((), {"05": 7.0}))})
        refuse_writes(place, disk)
        with capture_logs() as logs, serving(cloud, state=path, state_every_s=0.01) as (edge, device):
            warm(edge, device, [0])
            wait_until(lambda: str(path) in edge.caches.journal_problem, what="the problem")
            told = [line for line in logs if line["component"] == "journal"]
            assert [line["log_level"] for line in told] == ["warning"]
            assert "only in memory" in told[0]["event"]
            assert ("05" in cache_of(edge).estimator.counts()) == known
            allow_writes(place, disk)
            wait_until(lambda: not edge.caches.journal_problem, what="the next write")
        with StateStore(path, ManualClock()) as store:
            learnt = {stored.object_id for stored in store.load("museum").popularity}
            assert learnt == ({"00", "05"} if known else {"00"})
