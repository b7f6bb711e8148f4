import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nearsight.common.catalogue import store as catalogue_store
from nearsight.common.catalogue.store import Author, CatalogueStore
from nearsight.common.catalogue.training import TrainedObject
from nearsight.common.clock import ManualClock
from nearsight.common.errors import ConfigurationError, CorruptStore, InvalidArgument, NotFound, Overloaded
from support.objects import random_model, same_model
from support.waiting import LONG_S


def trained(object_id: str, seed: int = 0, *, training: str = "t1") -> TrainedObject:
    return TrainedObject(random_model(object_id, seed), f"hash {seed}", training)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cloud.db"


def test_stored_objects_are_read_after_reopening(path: Path) -> None:
    with CatalogueStore(path) as store:
        outcome = store.put("museum", [trained("a", 1), trained("b", 2)])
    assert (outcome.added, outcome.replaced, outcome.unchanged) == (("a", "b"), (), ())
    with CatalogueStore(path, create=False) as store:
        changes = store.changes_since("museum", 0)
        assert changes.revision == outcome.revision == 1
        assert [model.object_id for model in changes.written] == ["a", "b"]
        assert all(
            same_model(model, trained(model.object_id, seed).model)
            for seed, model in enumerate(changes.written, 1)
        )


def test_catalogues_are_independent(store: CatalogueStore) -> None:
    store.put("museum", [trained("a", 1)])
    store.put("shop", [trained("a", 2), trained("b", 3)])
    store.remove("museum", ["a"])
    assert [(info.name, info.objects, info.revision) for info in store.catalogues()] == [
        ("museum", 0, 2),
        ("shop", 2, 1),
    ]


def test_replacing_an_object_raises_its_version_and_the_revision(store: CatalogueStore) -> None:
    store.put("museum", [trained("a", 1), trained("b", 1)])
    outcome = store.put("museum", [trained("a", 2)])
    assert (outcome.added, outcome.replaced, outcome.revision) == ((), ("a",), 2)
    assert [(item.object_id, item.version) for item in store.objects("museum")] == [("a", 2), ("b", 1)]


def test_a_recreated_catalogue_continues_versions_and_revisions(store: CatalogueStore) -> None:
    store.put("museum", [trained("a", 1), trained("b", 1)])
    assert store.remove_catalogue("museum") == 2
    assert store.catalogues() == ()
    for call in (store.objects, store.remove_catalogue):
        with pytest.raises(NotFound):
            call("museum")
    outcome = store.put("museum", [trained("a", 2)])
    assert (outcome.added, outcome.revision) == (("a",), 3)
    assert [(item.object_id, item.version) for item in store.objects("museum")] == [("a", 2)]
    assert store.changes_since("museum", 1).removed == {"b"}


def test_the_log_contains_exactly_the_changes(path: Path) -> None:
    clock = ManualClock(1_000.0)
    curator = Author("curator", "k" * 40)
    with CatalogueStore(path, clock=clock) as store:
        store.put("museum", [trained("a", 1)])
        clock.advance(5.0)
        store.put("museum", [trained("a", 1)])  # changes nothing
        store.put("museum", [trained("a", 2), trained("b", 1)], curator)
        store.remove("museum", ["b", "nothing"], curator)
        with pytest.raises(InvalidArgument):
            store.put("../shop", [trained("a")], curator)
        store.put("shop", [trained("c")])
        store.remove_catalogue("museum", curator)
        local, by_curator = ("local", ""), tuple(curator)
        assert [tuple(entry) for entry in store.log()] == [
            (1_000.0, *local, "museum", 1, "began", ""),
            (1_000.0, *local, "museum", 1, "added", "a"),
            (1_005.0, *by_curator, "museum", 2, "added", "b"),
            (1_005.0, *by_curator, "museum", 2, "replaced", "a"),
            (1_005.0, *by_curator, "museum", 3, "removed", "b"),
            (1_005.0, *local, "shop", 1, "began", ""),
            (1_005.0, *local, "shop", 1, "added", "c"),
            (1_005.0, *by_curator, "museum", 4, "removed", ""),
        ]
        assert [entry.action for entry in store.log("shop")] == ["began", "added"]
        assert [entry.object_id for entry in store.log(last=2)] == ["c", ""]


def test_the_log_keeps_the_newest_entries(store: CatalogueStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue_store, "KEPT_LOG_ENTRIES", 3)
    for number in range(5):
        store.put("museum", [trained(f"{number}")])
    assert [entry.object_id for entry in store.log()] == ["2", "3", "4"]


def test_an_id_that_is_added_again_after_removal_gets_a_new_version(store: CatalogueStore) -> None:
    store.put("museum", [trained("a", 1)])
    store.remove("museum", ["a"])
    store.put("museum", [trained("a", 1)])
    assert store.objects("museum")[0].version == 2
    assert store.changes_since("museum", 1).removed == frozenset()


def test_a_removal_reports_missing_ids(store: CatalogueStore) -> None:
    store.put("museum", [trained("a", 1)])
    outcome = store.remove("museum", ["a", "x", "a"])
    assert (outcome.removed, outcome.missing, outcome.revision) == (("a",), ("x",), 2)
    assert store.remove("museum", ["a"]).revision == 2, "a removal of nothing is no change"


def test_changes_since_a_revision_are_only_the_later_ones(store: CatalogueStore) -> None:
    store.put("museum", [trained("a", 1), trained("b", 1)])
    store.put("museum", [trained("c", 1)])
    store.remove("museum", ["a"])
    changes = store.changes_since("museum", 1)
    assert [model.object_id for model in changes.written] == ["c"]
    assert changes.removed == {"a"}
    assert changes.revision == 3


def test_reading_reports_progress(store: CatalogueStore) -> None:
    store.put("museum", [trained("a", 1), trained("b", 1)])
    seen: list[tuple[int, int]] = []
    store.changes_since("museum", 0, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_the_error_for_an_unknown_catalogue_names_existing_ones(store: CatalogueStore) -> None:
    store.put("museum", [trained("a", 1)])
    for call in (
        store.objects,
        lambda name: store.changes_since(name, 0),
        lambda name: store.remove(name, []),
    ):
        with pytest.raises(NotFound) as caught:
            call("musuem")
        assert "museum" in caught.value.advice


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "-x", "é"])
def test_a_catalogue_needs_a_plain_name(store: CatalogueStore, name: str) -> None:
    with pytest.raises(InvalidArgument):
        store.put(name, [trained("a", 1)])
    assert store.catalogues() == ()


def test_an_invalid_object_in_a_batch_leaves_the_store_unchanged(store: CatalogueStore) -> None:
    with pytest.raises(InvalidArgument):
        store.put("museum", [trained("a", 1), trained("line\nbreak", 2)])
    assert store.catalogues() == ()


def test_an_error_during_a_transaction_rolls_it_back(
    store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("museum", [trained("a", 1)])
    write = store._write

    def interrupted_at_second(catalogue: str, item: TrainedObject, revision: int) -> None:
        if item.model.object_id == "c":
            raise KeyboardInterrupt
        write(catalogue, item, revision)

    monkeypatch.setattr(store, "_write", interrupted_at_second)
    with pytest.raises(KeyboardInterrupt):
        store.put("museum", [trained("b", 1), trained("c", 1)])
    assert [item.object_id for item in store.objects("museum")] == ["a"]
    assert store.catalogues()[0].revision == 1


def damage_a_model(path: Path) -> None:
    """Flip one bit in the first of two models; SQLite's own check does not detect it."""
    with CatalogueStore(path) as store:
        store.put("museum", [trained("a", 1), trained("b", 2)])
    data = path.read_bytes()
    position = data.index(random_model("a", 1).views[0].descriptors.tobytes()) + 7
    path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])


def orphaned_row(path: Path) -> None:
    with CatalogueStore(path) as store:
        store.put("museum", [trained("a", 1)])
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM catalogues")
    connection.commit()
    connection.close()


def flipped(data: bytes) -> bytes:
    """The data with some inverted bytes in every page except the first."""
    changed = bytearray(data)
    for position in range(4096 + 7, len(data), 512):
        changed[position] ^= 0xFF
    return bytes(changed)


UNUSABLE: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda _: b"holiday photos, do not delete\n" * 500,
    "one byte": lambda _: b"S",
    "flipped pages": flipped,
    "cut in half": lambda data: data[: len(data) // 2],
    "flipped header": lambda data: b"\xff" * 16 + data[16:],
    "version lost": lambda data: data[:60] + bytes(4) + data[64:],
    "wrong older version": lambda data: data[:60] + (1).to_bytes(4, "big") + data[64:],
    "newer schema": lambda data: data[:60] + (99).to_bytes(4, "big") + data[64:],
    "another application": lambda data: data[:68] + b"abcd" + data[72:],
}


def is_refused_untouched(path: Path) -> bool:
    before = path.read_bytes()
    with pytest.raises(CorruptStore) as caught:
        CatalogueStore(path)
    assert str(path) in caught.value.message
    assert caught.value.advice
    return path.read_bytes() == before


@pytest.mark.parametrize("damage", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_an_unusable_file_is_refused_with_advice_and_not_changed(
    path: Path, damage: Callable[[bytes], bytes]
) -> None:
    with CatalogueStore(path) as store:
        store.put("museum", [trained(f"{n:03}", n) for n in range(40)])
    path.write_bytes(damage(path.read_bytes()))
    assert is_refused_untouched(path)


def test_a_row_without_its_catalogue_is_damage(path: Path) -> None:
    orphaned_row(path)
    assert is_refused_untouched(path)


def test_a_damaged_model_is_named_and_the_others_are_read(path: Path) -> None:
    damage_a_model(path)
    before = path.read_bytes()
    with CatalogueStore(path) as store:
        changes = store.changes_since("museum", 0)
        assert "checksum" in changes.damaged["a"]
        assert store.damaged("museum") == {"a"}
    assert ([model.object_id for model in changes.written], changes.revision) == (["b"], 1)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "column", ["label = 'another'", "version = 7", "views = 2", "model = 'text'", "model = zeroblob(20)"]
)
def test_a_row_that_contradicts_its_model_is_damaged(path: Path, column: str) -> None:
    with CatalogueStore(path) as store:
        store.put("museum", [trained("a", 1), trained("b", 2)])
        store.rows(f"UPDATE objects SET {column} WHERE object_id = 'a'")
        assert set(store.changes_since("museum", 0).damaged) == {"a"}


def test_putting_a_damaged_object_again_repairs_it(path: Path) -> None:
    damage_a_model(path)
    with CatalogueStore(path) as store:
        outcome = store.put("museum", [trained("a", 1), trained("b", 2)])
        assert (outcome.replaced, outcome.unchanged) == (("a",), ("b",))
        changes = store.changes_since("museum", 0)
        assert not changes.damaged
        assert sorted(model.object_id for model in changes.written) == ["a", "b"]


def test_the_log_of_a_damaged_file_is_kept_after_its_writer_was_killed(path: Path) -> None:
    """A writable last connection would copy the log into the damaged file when it closes."""
    with CatalogueStore(path) as store:
        store.put("museum", [trained(f"{n:03}", n) for n in range(40)])
    kill_writer_after(path, acknowledged=3)
    data = flipped(path.read_bytes())
    path.write_bytes(data)
    log = path.with_name("cloud.db-wal").read_bytes()
    assert log
    with pytest.raises(CorruptStore):
        CatalogueStore(path)
    assert path.read_bytes() == data
    assert path.with_name("cloud.db-wal").read_bytes() == log


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.touch()
    with CatalogueStore(path) as store:
        assert store.catalogues() == ()


def test_a_missing_database_is_created_only_when_asked(path: Path) -> None:
    with pytest.raises(NotFound):
        CatalogueStore(path, create=False)
    assert not path.exists()


def test_invalid_places_for_a_database_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder"):
        CatalogueStore(tmp_path)
    with pytest.raises(ConfigurationError, match="there is no folder") as caught:
        CatalogueStore(tmp_path / "no" / "cloud.db")
    assert "mkdir" in caught.value.advice


def test_a_path_with_characters_special_to_urls_works(tmp_path: Path) -> None:
    path = tmp_path / "50% off? #1.db"
    with CatalogueStore(path) as store:
        store.put("museum", [trained("a", 1)])
    assert path.exists()
    with CatalogueStore(path, create=False) as store:
        assert len(store.objects("museum")) == 1


def test_only_a_commit_of_another_connection_changes_the_data_version(
    store: CatalogueStore, path: Path
) -> None:
    seen = store.data_version()
    store.put("museum", [trained("a", 1)])
    assert store.data_version() == seen
    with CatalogueStore(path) as other:
        other.put("museum", [trained("b", 1)])
        assert store.data_version() != seen
    assert [item.object_id for item in store.objects("museum")] == ["a", "b"]


def test_a_writer_that_does_not_finish_is_reported_as_overload(
    store: CatalogueStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = dataclasses.replace(catalogue_store.FORMAT, busy_timeout_s=0.01)
    monkeypatch.setattr(catalogue_store, "FORMAT", hasty)
    with CatalogueStore(path) as impatient:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(Overloaded, match="another process"):
            impatient.put("museum", [trained("a", 1)])
        blocker.execute("ROLLBACK")
        blocker.close()
        assert impatient.put("museum", [trained("a", 1)]).added == ("a",)


WRITER = """
import sys
import threading
from pathlib import Path
from support.objects import random_model
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import TrainedObject
store = CatalogueStore(Path(sys.argv[1]))
for n in range(100_000):
    name = f"killed{n:06}"
    store.put("museum", [TrainedObject(random_model(name, n), str(n), "t")])
    print(name, flush=True)
"""


def kill_writer_after(path: Path, *, acknowledged: int) -> list[str]:
    """Kill a process while it puts objects one by one; returns the ids that it confirmed."""
    tests = str(Path(__file__).resolve().parents[2])
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": tests},
    )
    assert writer.stdout is not None
    with writer.stdout as lines:
        confirmed = [next(lines).strip() for _ in range(acknowledged)]
        writer.send_signal(signal.SIGKILL)
        confirmed += [line.strip() for line in lines if line.endswith("\n")]
    writer.wait(LONG_S)
    return confirmed


def test_a_commit_is_on_disk_before_it_is_acknowledged(store: CatalogueStore) -> None:
    """Checks the settings, because only a power failure would show the effect of ``synchronous``."""
    assert store.rows("PRAGMA synchronous") == [(2,)], "FULL"
    assert store.rows("PRAGMA journal_mode") == [("wal",)]
    assert store.rows("PRAGMA foreign_keys") == [(1,)]


def test_several_connections_may_create_the_file_at_the_same_time(tmp_path: Path) -> None:
    for round_number in range(10):
        path, barrier = tmp_path / f"{round_number}.db", threading.Barrier(4)

        def create(path: Path = path, barrier: threading.Barrier = barrier) -> int:
            barrier.wait(LONG_S)
            with CatalogueStore(path) as store:
                return store.put("museum", [trained("a", 1)]).revision

        with ThreadPoolExecutor(4) as pool:
            assert [future.result() for future in [pool.submit(create) for _ in range(4)]] == [1] * 4
