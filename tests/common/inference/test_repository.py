"""The folder of networks: versions, damage, other processes, full disks."""

import errno
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from nearsight.common.errors import CorruptStore, InvalidArgument, NotFound, SetupError, Unavailable
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.measurement import Measurement
from nearsight.common.inference.repository import ModelRepository, checksum_of, manifest_of_file
from support.networks import add_network, adder_network, split_network
from support.waiting import LONG_S, wait_until

MEASURED = Measurement(1_000, 2.0, 3.0, 4.0, "1.0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return adder_network(tmp_path / "adder.onnx")


def test_an_added_network_is_available_to_every_process(folder: Path, network: Path) -> None:
    other = ModelRepository(folder)
    added = add_network(ModelRepository(folder), "adder", network, ["a", "b"])
    assert (other.manifests(), other.refresh()) == ({}, True)
    assert other.get("adder") == added
    assert other.checked_path(added).read_bytes() == network.read_bytes()
    assert other.refresh() is False


def test_segments_for_video_are_removed_with_the_version_of_the_network_from_which_they_were_made(
    folder: Path, network: Path, tmp_path: Path
) -> None:
    repository = ModelRepository(folder)
    segments = repository.path(add_network(repository, "adder", network), "segments")
    (segments / "1x4").mkdir(parents=True)
    add_network(repository, "adder", network, ["a", "b"])
    assert segments.exists()
    added = add_network(repository, "adder", adder_network(tmp_path / "other.onnx", 2.0))
    assert not segments.exists()
    repository.path(added, "segments").mkdir()
    repository.remove("adder")
    assert not [*folder.iterdir()]


@pytest.mark.parametrize("move", [False, True], ids=["copied", "moved"])
def test_all_files_of_an_added_network_are_synced_to_disk(
    folder: Path, network: Path, monkeypatch: pytest.MonkeyPatch, *, move: bool
) -> None:
    folder.mkdir()
    source = network.replace(folder / "adder.part") if move else network
    synced, sync = set(), os.fsync

    def noted(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    repository = ModelRepository(folder)
    added = repository.add(source, manifest_of_file(source, "adder"), move=move)
    files = (repository.path(added), folder / "adder.json", folder)
    assert {path.stat().st_ino for path in files} <= synced, "a power cut would lose it"


def test_a_network_that_is_added_while_the_folder_is_read_is_kept(
    folder: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, read = ModelRepository(folder), Path.iterdir
    adding = threading.Thread(target=add_network, args=(repository, "adder", network))

    def iterdir(path: Path) -> list[Path]:
        found = list(read(path)) if path.exists() else []
        if not adding.ident:
            adding.start()
            wait_until(lambda: not adding.is_alive() or repository._lock.locked(), what="the network")
        return found

    monkeypatch.setattr(Path, "iterdir", iterdir)
    repository.refresh()
    adding.join(LONG_S)
    assert repository.has("adder")


def test_a_temporarily_unreadable_folder_removes_no_network(
    folder: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = ModelRepository(folder)
    add_network(repository, "adder", network)

    def refuse(*_: object) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        patch.setattr(os, "scandir", refuse)
        assert (repository.refresh(), repository.has("adder")) == (False, True)
        assert repository.problems == {str(folder): "the folder cannot be read: Permission denied"}
    assert (repository.refresh(), repository.problems) == (False, {})


def test_a_manifest_that_cannot_be_read_now_is_read_again_and_its_network_kept(
    folder: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, changed = ModelRepository(folder), ModelRepository(folder)
    add_network(repository, "adder", network, ["a"])

    def refuse(*_: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    add_network(changed, "adder", network, ["b"])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        repository.refresh()
        assert "Permission denied" in repository.problems["adder"]
        assert repository.get("adder").labels == ("a",)
    repository.refresh()
    assert (repository.get("adder").labels, repository.problems) == (("b",), {})


def test_the_problem_of_a_damaged_manifest_ends_with_its_file(folder: Path) -> None:
    folder.mkdir()
    (folder / "adder.json").write_text("{")
    repository = ModelRepository(folder)
    assert "is damaged" in repository.problems["adder"]
    (folder / "adder.json").unlink()
    repository.refresh()
    assert repository.problems == {}


def test_the_version_increases_with_each_change(folder: Path, network: Path, tmp_path: Path) -> None:
    repository = ModelRepository(folder)
    versions = [
        add_network(repository, "adder", file, labels).version
        for file, labels in (
            (network, ["a"]),
            (network, ["a"]),
            (network, ["b"]),
            (adder_network(tmp_path / "other.onnx", 2.0), ["b"]),
        )
    ]
    assert versions == [1, 1, 2, 3]


def test_a_measurement_is_stored_without_a_new_version(folder: Path, network: Path) -> None:
    repository = ModelRepository(folder)
    repository.note_measured(add_network(repository, "adder", network), MEASURED)
    kept = ModelRepository(folder).get("adder")
    assert (kept.measured, kept.version) == (MEASURED, 1)
    assert Manifest.from_json(kept.to_json(shared=True)).measured is None


def test_a_measurement_keeps_labels_that_were_changed_meanwhile(folder: Path, network: Path) -> None:
    repository = ModelRepository(folder)
    measured = add_network(repository, "adder", network, ["a"])
    add_network(ModelRepository(folder), "adder", network, ["b"])
    kept = repository.note_measured(measured, MEASURED)
    assert (kept.labels, kept.version, kept.measured) == (("b",), 2, MEASURED)
    assert repository.get("adder") == ModelRepository(folder).get("adder") == kept


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_measurement_of_a_removed_or_replaced_network_is_not_stored(
    folder: Path, network: Path, tmp_path: Path, change: str
) -> None:
    repository, other = ModelRepository(folder), ModelRepository(folder)
    measured = add_network(repository, "adder", network)
    if change == "removed":
        other.remove("adder")
    else:
        add_network(other, "adder", adder_network(tmp_path / "other.onnx", 2.0))
    before = {*folder.iterdir()}
    with pytest.raises(Unavailable, match="'adder' has just been replaced or removed"):
        repository.note_measured(measured, MEASURED)
    assert {*folder.iterdir()} == before
    assert all(one.measured is None for one in ModelRepository(folder).manifests().values())


def test_a_network_cannot_stand_in_for_itself(network: Path) -> None:
    with pytest.raises(InvalidArgument, match="adder cannot stand in for itself"):
        replace(manifest_of_file(network, "adder"), accuracy=0.7, stands_in_for="adder")


def test_a_saved_graph_is_added_and_removed_with_its_file(
    folder: Path, network: Path, tmp_path: Path
) -> None:
    repository = ModelRepository(folder)

    def add(file: Path) -> Path:
        made = tmp_path / "made"
        made.mkdir()
        (made / "graph.onnx").write_text(file.name)
        added = repository.add(file, manifest_of_file(file, "adder"), prepared=made)
        return repository.path(added, "prepared") / "graph.onnx"

    before = add(network)
    assert before.read_text() == "adder.onnx"
    after = add(adder_network(tmp_path / "other.onnx", 2.0))
    assert (before.parent.exists(), after.read_text()) == (False, "other.onnx")
    repository.path(manifest_of_file(network, "adder"), "part").touch()
    repository.remove("adder")
    assert list(folder.iterdir()) == []


def test_partial_files_are_removed_by_name_or_by_age(folder: Path, network: Path) -> None:
    repository, parts = ModelRepository(folder), {}
    folder.mkdir()
    for name, written_s in (("old", 1000), ("new", 2000), ("new-er", 3000)):
        parts[name] = repository.path(manifest_of_file(network, name), "part")
        parts[name].touch()
        os.utime(parts[name], (written_s, written_s))
    repository.remove_parts(before_s=1500)
    assert {*folder.iterdir()} == {parts["new"], parts["new-er"]}
    repository.remove("new")
    assert {*folder.iterdir()} == {parts["new-er"]}
    with pytest.raises(NotFound):
        repository.remove("new")


@pytest.mark.parametrize("remove", [False, True], ids=["add", "remove"])
def test_unfinished_files_of_a_killed_process_are_removed_with_the_next_change(
    folder: Path, network: Path, tmp_path: Path, *, remove: bool
) -> None:
    repository = ModelRepository(folder)
    left = repository.path(manifest_of_file(adder_network(tmp_path / "b.onnx", 2.0), "adder"), "4711.new")
    graph = left.with_suffix("").with_suffix(".prepared.new")
    graph.mkdir(parents=True)
    left.touch()
    if remove:
        repository.remove("adder")
    else:
        add_network(repository, "adder", network)
    assert not left.exists()
    assert not graph.exists()


def test_a_file_that_changes_while_it_is_added_replaces_nothing(
    folder: Path, network: Path, tmp_path: Path
) -> None:
    repository = ModelRepository(folder)
    before = add_network(repository, "adder", network)
    file = adder_network(tmp_path / "training.onnx", 2.0)
    wanted = manifest_of_file(file, "adder")
    adder_network(file, 3.0)  # another program writes the next result
    with pytest.raises(InvalidArgument, match=r"training\.onnx changed while network 'adder' was added"):
        repository.add(file, wanted)
    assert repository.checked_path(ModelRepository(folder).get("adder")) == repository.path(before)
    assert {*folder.iterdir()} == {folder / "adder.json", repository.path(before)}


def test_a_file_with_another_checksum_is_quarantined_and_reported(folder: Path, network: Path) -> None:
    repository = ModelRepository(folder)
    manifest = add_network(repository, "adder", network)
    data = bytearray(network.read_bytes())
    data[len(data) // 2] ^= 1
    repository.path(manifest).write_bytes(data)
    with pytest.raises(CorruptStore, match="is damaged: checksum"):
        repository.checked_path(manifest)
    assert (folder / "quarantine" / repository.path(manifest).name).read_bytes() == data
    with pytest.raises(NotFound, match="is damaged: checksum"):
        repository.get("adder")
    assert add_network(repository, "adder", network) == manifest
    assert repository.checked_path(manifest).exists()


def test_a_network_with_weights_in_another_file_is_quarantined(folder: Path, tmp_path: Path) -> None:
    repository = ModelRepository(folder)
    manifest = add_network(repository, "split", split_network(tmp_path / "split.onnx"))
    with pytest.raises(CorruptStore, match="the weights of split are in another file"):
        repository.checked_path(manifest)
    assert (repository.has("split"), len([*folder.glob("quarantine/*")])) == (False, 2)


def test_a_missing_file_is_reported(folder: Path, network: Path) -> None:
    repository = ModelRepository(folder)
    manifest = add_network(repository, "adder", network)
    repository.path(manifest).unlink()
    with pytest.raises(CorruptStore, match="is missing"):
        repository.checked_path(manifest)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "adder"}', "\x00", "[" * 100_000])
def test_a_damaged_manifest_removes_only_its_own_network(folder: Path, network: Path, text: str) -> None:
    repository = ModelRepository(folder)
    for name in ("adder", "other"):
        add_network(repository, name, network)
    (folder / "adder.json").write_text(text)
    repository.refresh()
    assert list(repository.manifests()) == ["other"]
    assert "damaged" in repository.problems["adder"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("labels", "red"), ("labels", [1]), ("size_bytes", 1e400), ("version", 1.5), ("colour", "red")],
)
def test_a_value_of_a_wrong_type_in_a_manifest_is_named(network: Path, name: str, value: object) -> None:
    values = json.loads(manifest_of_file(network, "adder").to_json())
    with pytest.raises(CorruptStore, match=rf"damaged: {name}[.\d]*: "):
        Manifest.from_json(json.dumps({**values, name: value}))


def test_a_manifest_under_another_name_is_refused(folder: Path, network: Path) -> None:
    repository = ModelRepository(folder)
    add_network(repository, "adder", network)
    (folder / "adder.json").rename(folder / "other.json")
    assert ModelRepository(folder).manifests() == {}


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "x" * 101])
def test_names_that_are_not_valid_file_names_are_refused(network: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="not a valid name"):
        manifest_of_file(network, name)


def full(descriptor: int) -> None:
    """Fail as `os.fsync` does on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_previous_version(
    folder: Path, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = ModelRepository(folder)
    before = add_network(repository, "adder", network)
    other = adder_network(tmp_path / "other.onnx", 7.0)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(SetupError, match="No space left") as caught:
            add_network(repository, "adder", other)
        assert caught.value.advice.startswith("free some space")
    kept = ModelRepository(folder)
    assert kept.checked_path(kept.get("adder")).read_bytes() == network.read_bytes()
    assert kept.get("adder") == before
    assert set(folder.iterdir()) == {folder / "adder.json", kept.path(before)}


def test_a_measurement_on_a_full_disk_is_kept_in_this_process_only(
    folder: Path, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = ModelRepository(folder)
    manifest = add_network(repository, "adder", network)

    monkeypatch.setattr(os, "fsync", full)
    assert repository.note_measured(manifest, MEASURED).measured == MEASURED
    assert repository.get("adder").measured == MEASURED
    assert ModelRepository(folder).get("adder") == manifest


def test_the_file_of_a_previous_version_is_deleted_and_requests_for_it_are_unavailable(
    folder: Path, network: Path, tmp_path: Path
) -> None:
    repository, other = ModelRepository(folder), ModelRepository(folder)
    before = add_network(repository, "adder", network)
    other.refresh()
    after = add_network(repository, "adder", adder_network(tmp_path / "other.onnx", 7.0))
    assert set(folder.iterdir()) == {folder / "adder.json", repository.path(after)}
    with pytest.raises(Unavailable, match="has just been replaced"):
        other.checked_path(before)
    assert other.checked_path(other.get("adder")).exists()


def test_a_removed_network_is_removed_for_every_process(folder: Path, network: Path) -> None:
    repository = ModelRepository(folder)
    add_network(repository, "adder", network)
    other = ModelRepository(folder)
    repository.remove("adder")
    assert other.refresh()
    assert (other.manifests(), list(folder.iterdir())) == ({}, [])
    with pytest.raises(NotFound):
        repository.remove("adder")


def test_a_path_is_not_the_name_of_a_network_to_remove(folder: Path, network: Path, tmp_path: Path) -> None:
    repository, other = ModelRepository(folder), tmp_path / "other.json"
    add_network(repository, "adder", network)
    other.write_text("{}")
    for name in (f"../{other.stem}", str(other.with_suffix(""))):
        with pytest.raises(InvalidArgument, match="not a valid name"):
            repository.remove(name)
    assert other.exists()


def test_new_labels_for_the_same_file_keep_the_measurement(folder: Path, network: Path) -> None:
    repository = ModelRepository(folder)
    manifest = repository.note_measured(add_network(repository, "adder", network, ["a"]), MEASURED)
    repository.relabel(replace(manifest, labels=("b",), version=2, measured=None))
    kept = ModelRepository(folder).get("adder")
    assert (kept.labels, kept.version, kept.measured) == (("b",), 2, MEASURED)


def test_the_checksum_is_sha_256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert checksum_of(tmp_path / "abc").startswith("ba7816bf8f01cfea414140de5dae2223")
