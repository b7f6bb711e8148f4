"""A sweep on a real testbed with one device over SSH: only complete cells are kept, and it is resumed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nearsight.__main__ import main
from nearsight.common.catalogue.store import CatalogueStore, TrainedObject
from nearsight.common.database.places import log_of
from nearsight.common.errors import ConfigurationError, InvalidArgument, SetupError, Unavailable
from nearsight.common.folder_lock import locked as folder_locked
from nearsight.experiments.rig import sequence
from nearsight.experiments.rig.rows import read_request_rows, summarise
from nearsight.experiments.testbed import replaying, running
from nearsight.experiments.testbed.building import bring_files
from nearsight.experiments.testbed.campaign import BUILT_IN, cells
from nearsight.experiments.testbed.inventory import DeviceSpec, Inventory, NodeSpec, ReplaySpec, ServerSpec
from nearsight.experiments.testbed.nodes import Nodes
from nearsight.experiments.testbed.reading import read_inventory
from nearsight.experiments.testbed.running import (
    check,
    cut_catalogue,
    digest_of,
    missing,
    run_cell,
    visits_of,
    with_material,
)
from nearsight.experiments.testbed.state import RUN_LOCK_FILE, TestbedState, load_state, locked
from nearsight.experiments.testbed.summary import FACTS, ROWS
from nearsight.experiments.testbed.testbed import take_down
from support.disks import refuse_writes, small_disk
from support.gallery import exhibit_models, write_data_set
from support.sshd import Sshd
from support.testbeds import processes_with, write_inventory

REPLAY = """
[nodes.here]
kind = "process"
address = "127.0.0.1"
[nodes.lab]
{node}
address = "127.0.0.1"
folder = "{remote}"
python = "{python}"
pip = ["--no-index"]
[cloud]
node = "here"
files = {{ database = "cloud.db" }}
[edges.main]
node = "here"
settings = {{ "cache.policy" = "lfu", "cache.fixed_size" = 3 }}
[devices.near]
node = "here"
settings = {{ "recognizer.prefetch.enabled" = false }}
[devices.far]
node = "lab"
settings = {{ "recognizer.prefetch.enabled" = false }}
[[links]]
from = "lab"
to = "here"
rtt_ms = 5
[replay]
photos = "museum"
trace = "visits.csv"
seconds = 3
warm_up = 1
timeout_s = 60
[configurations.edge-cache]
"""
_OF_SSH = ('folder = "unused"', 'python = "python3"', 'pip = ["--no-index"]')
OBJECTS = ("mona", "david", "nike")


def museum(folder: Path) -> None:
    write_data_set(folder / "museum", {name: seed for seed, name in enumerate(OBJECTS)})
    stays = [
        f"{visitor},{name},{2 * index},{2 * index + 2}"
        for visitor in ("ann", "bob", "zoe")
        for index, name in enumerate(OBJECTS)
    ]
    (folder / "visits.csv").write_text("visitor,exhibit,start_s,end_s\n" + "\n".join(stays) + "\n")
    database = folder / "cloud.db"
    assert (
        main(
            ["cloud", "ingest", str(folder / "museum"), "--database", str(database), "--catalogue", "museum"]
        )
        == 0
    )


@pytest.mark.system
@pytest.mark.needs("sshd")
def test_a_sweep_keeps_complete_cells_and_continues_after_a_failure(
    sshd: Sshd, remote: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    museum(tmp_path)
    path = write_inventory(tmp_path, REPLAY.format(node=sshd.node, remote=remote, python=sys.executable))
    inventory = read_inventory(path)
    out, state = tmp_path / "results", tmp_path / "lab.testbed"
    (cell,) = cells(inventory)
    contents = digest_of(inventory)
    command = ["testbed", "run", str(path), "--state", str(state), "--out", str(out)]

    with monkeypatch.context() as broken:
        broken.setattr(sequence, "accounting_errors", lambda _rows: ["a request has no outcome"])
        assert main(command) == 1
    assert missing(inventory, out, contents) == [cell]
    assert load_state(state) is None
    assert processes_with(str(remote)) == []

    assert main(command) == 0
    assert missing(inventory, out, contents) == []
    rows = read_request_rows(out / cell.name / ROWS)
    assert {(row.visitor, row.number) for row in rows} == {(v, n) for v in ("ann", "bob") for n in range(3)}
    summary = summarise(rows, timeout_s=60.0)
    assert summary.recall == 1.0
    assert summary.answered_by["edge"] >= 4  # warmed up with the visit of zoe
    kept = (out / cell.name / FACTS).read_text()
    facts = json.loads(kept)
    assert facts["machines"]["lab"]["cores"] >= 1
    assert facts["links"]["lab/link-to-edge-main"]["up_bytes"] > 1000
    assert (out / "summary.png").stat().st_size > 10_000
    assert set(facts["cpu_s"]) == {
        "here/cloud",
        "here/edge-main",
        "lab/link-to-cloud",
        "lab/link-to-edge-main",
    }

    assert main(command) == 0
    assert (out / cell.name / FACTS).read_text() == kept
    with pytest.raises(
        ConfigurationError, match="9 runs need 18 visitors, but without those of the warm-up there are 2"
    ):
        check(inventory, [*cells(inventory), replace(cell, run=9)])
    other = inventory.model_copy(update={"seed": 2})
    with pytest.raises(ConfigurationError, match="measured with another inventory"):
        missing(other, out, contents)


def local_inventory(tmp_path: Path, more: str = "") -> Inventory:
    """The same inventory without SSH, and ``more`` tables."""
    museum(tmp_path)
    text = REPLAY.format(node='kind = "process"', remote="unused", python="python3") + more
    kept = [line for line in text.splitlines() if line not in _OF_SSH]
    return read_inventory(write_inventory(tmp_path, "\n".join(kept)))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (
            'device = { "recognizer.prefetch.features" = -5 }',
            "devices.near: recognizer.prefetch.features: ",
        ),
        ('edge = { "multi_usr" = "bounded" }', "edges.main: unknown setting 'multi_usr'"),
    ],
)
def test_wrong_settings_of_any_configuration_are_found_before_the_first_part(
    tmp_path: Path, wrong: str, complaint: str
) -> None:
    inventory = local_inventory(tmp_path, f"\n[configurations.other]\n{wrong}\n")
    with pytest.raises(ConfigurationError) as caught:
        check(inventory, cells(inventory))
    assert str(caught.value).startswith(f"configuration 'other', settings of {complaint}")


def test_the_settings_of_the_built_in_configurations_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEARSIGHT_EDGE__NO_SUCH", "1")  # not of the testbed's daemons
    inventory = local_inventory(tmp_path).model_copy(update={"configurations": {}})
    found = cells(inventory)
    assert [cell.configuration for cell in found] == list(BUILT_IN)
    check(inventory, found)


def test_points_with_a_part_of_the_catalogue_are_checked(tmp_path: Path) -> None:
    inventory = local_inventory(tmp_path, "\n[sweep]\nvisitors = [1, 2]\n")
    assert inventory.replay is not None
    part = inventory.replay.model_copy(update={"classes": len(OBJECTS)})
    inventory = inventory.model_copy(update={"replay": part})
    check(inventory, cells(inventory))


@pytest.mark.parametrize("facts", ["", "{", "[]", '{"seconds": 3}'])
def test_a_damaged_cell_and_one_of_another_version_are_errors(tmp_path: Path, facts: str) -> None:
    inventory = local_inventory(tmp_path)
    (cell,) = cells(inventory)
    (tmp_path / "results" / cell.name).mkdir(parents=True)
    (tmp_path / "results" / cell.name / FACTS).write_text(facts)
    with pytest.raises(ConfigurationError, match=f"{cell.name} was measured with .* remove it to measure"):
        missing(inventory, tmp_path / "results", digest_of(inventory))


@pytest.mark.parametrize("option", ["--out", "--state"])
def test_a_file_instead_of_a_folder_is_refused_before_anything_is_measured(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    local_inventory(tmp_path)
    (tmp_path / "file").touch()
    assert main(["testbed", "run", str(tmp_path / "lab.toml"), option, str(tmp_path / "file")]) == 2
    assert "is a file" in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.system
@pytest.mark.needs("mounts")
def test_nothing_is_measured_if_the_results_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local_inventory(tmp_path)
    out = tmp_path / "results"
    out.mkdir()
    monkeypatch.setattr(running, "run_cell", None)
    with small_disk(out):
        refuse_writes(out, "read-only")
        assert main(["testbed", "run", str(tmp_path / "lab.toml"), "--out", str(out)]) == 5
    assert "Read-only file system" in capsys.readouterr().err


def test_two_runs_cannot_use_one_testbed(tmp_path: Path) -> None:
    inventory, state = local_inventory(tmp_path), tmp_path / "lab.testbed"
    (cell,) = cells(inventory)
    with (
        locked(state, RUN_LOCK_FILE),
        pytest.raises(SetupError, match="another command uses the testbed"),
    ):
        run_cell(inventory, cell, state, tmp_path, digest_of(inventory), lambda _stage: None)
    assert load_state(state) is None


def test_two_runs_cannot_write_into_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cell,) = cells(local_inventory(tmp_path))
    out = tmp_path / "results"
    earlier = out / cell.name / FACTS
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    with folder_locked(out):
        assert main(["testbed", "run", str(tmp_path / "lab.toml"), "--out", str(out), "--fresh"]) == 5
    assert f"another command works in {out}" in " ".join(capsys.readouterr().err.split())
    assert earlier.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [((), "the same command continues"), (("--fresh",), "the same command without --fresh continues")],
)
def test_a_stopped_sweep_names_the_command_that_continues_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    said: str,
) -> None:
    def stopped(*_: object) -> None:
        raise Unavailable("a node is off")

    local_inventory(tmp_path)
    monkeypatch.setattr(running, "run_cell", stopped)
    out = str(tmp_path / "results")
    assert main(["testbed", "run", str(tmp_path / "lab.toml"), "--out", out, *flags]) == 4
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.system
def test_the_first_error_is_raised_also_if_the_removal_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory, state = local_inventory(tmp_path), tmp_path / "lab.testbed"
    (cell,) = cells(inventory)

    def disturb(stage: str) -> None:
        if "photos for" in stage:
            raise InvalidArgument("first")

    with monkeypatch.context() as unreachable, pytest.raises(InvalidArgument, match="first"):
        unreachable.setattr(replaying, "take_down", _unreachable)
        run_cell(inventory, cell, state, tmp_path, digest_of(inventory), disturb)
    left = load_state(state)
    assert left is not None
    assert left.of_run
    assert take_down(state)


def _unreachable(_folder: Path) -> bool:
    raise Unavailable("a node is off")


@pytest.mark.system
def test_the_error_names_a_server_that_ends_during_the_warm_up(tmp_path: Path) -> None:
    inventory, state = local_inventory(tmp_path), tmp_path / "lab.testbed"
    (cell,) = cells(inventory)

    def kill_the_edge(stage: str) -> None:
        if "earlier visitors" in stage:
            for process in psutil.process_iter(["cmdline"]):
                command = " ".join(process.info["cmdline"] or ())
                if str(state) in command and " edge " in command:
                    process.kill()

    with pytest.raises(Unavailable, match="edge-main on here ended before the replay was over"):
        run_cell(inventory, cell, state, tmp_path, digest_of(inventory), kill_the_edge)
    assert processes_with(str(state)) == []


EXHIBITS = tuple(f"exhibit-{number}" for number in range(5))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "museum.db"
    with CatalogueStore(path) as store:
        store.put("museum", [TrainedObject(model, model.object_id, "test") for model in exhibit_models(5)])
    return path


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    folder = tmp_path / "museum"
    for name in ("references", "queries"):
        (folder / name).mkdir(parents=True)
    for name in EXHIBITS:
        (folder / "references" / f"{name}.jpg").touch()
        (folder / "queries" / f"{name}.jpg").touch()
    lines = [f"{name}.jpg,{name}" for name in EXHIBITS]
    (folder / "labels.csv").write_text("\n".join(["query,object_id", *lines]) + "\n")
    return folder


def objects_in(database: Path) -> list[str]:
    with CatalogueStore(database, create=False) as store:
        return [one.object_id for one in store.objects("museum")]


def test_a_smaller_catalogue_keeps_the_objects_on_show(database: Path, tmp_path: Path) -> None:
    smaller = tmp_path / "smaller.db"
    cut_catalogue(database, smaller, catalogue="museum", keep={"exhibit-4"}, classes=3)
    assert objects_in(smaller) == ["exhibit-0", "exhibit-1", "exhibit-4"]
    assert objects_in(database) == list(EXHIBITS)


@pytest.mark.parametrize(
    ("classes", "complaint"),
    [(6, "6 classes: .* has only 5 objects"), (1, "1 classes: 2 objects are on show")],
)
def test_an_impossible_number_of_classes_is_refused(
    database: Path, tmp_path: Path, classes: int, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        keep = set(EXHIBITS[:2])
        cut_catalogue(database, tmp_path / "x.db", catalogue="museum", keep=keep, classes=classes)


def test_a_testbed_gets_the_objects_that_a_running_cloud_added(tmp_path: Path) -> None:
    inventory = Inventory(nodes={"server": NodeSpec(kind="process")}, cloud=ServerSpec(node="server"))
    database = tmp_path / "museum.db"
    with Nodes(TestbedState(inventory), tmp_path) as nodes, CatalogueStore(database) as store:
        store.put("museum", [TrainedObject(model, model.object_id, "test") for model in exhibit_models(5)])
        spec = ServerSpec(node="server", files={"database": database})
        copied = bring_files(nodes["server"], "cloud", spec)
        assert objects_in(Path(copied["database"])) == list(EXHIBITS)


def test_generated_visitors_see_the_objects_of_their_section(drawn: Path) -> None:
    spec = ReplaySpec(photos=drawn, sections=2, exhibits=2, population=6)
    seen: dict[str, set[str]] = {}
    for visit in visits_of(spec):
        seen.setdefault(visit.visitor, set()).add(visit.exhibit)
    assert len(seen) == 6
    rooms = [set(EXHIBITS[:2]), set(EXHIBITS[2:4])]
    assert all(any(objects <= room for room in rooms) for objects in seen.values())
    assert visits_of(spec) == visits_of(spec)
    with pytest.raises(InvalidArgument, match="6 exhibits need as many objects, got 5"):
        visits_of(spec.model_copy(update={"sections": 3}))


def test_the_visits_and_the_catalogue_of_a_cell_are_files(
    drawn: Path, database: Path, tmp_path: Path
) -> None:
    spec = ReplaySpec(photos=drawn, sections=1, exhibits=2, population=2, classes=4)
    inventory = Inventory(
        nodes={},
        cloud=ServerSpec(node="server", files={"database": database}),
        devices={"visitors": DeviceSpec(node="phone")},
        replay=spec,
    )
    with_material(inventory, visits_of(spec), tmp_path / "material")  # of an earlier cell
    changed = with_material(inventory, visits_of(spec), tmp_path / "material")
    assert objects_in(changed.cloud.files["database"]) == list(EXHIBITS[:4])
    assert changed.replay is not None
    assert visits_of(changed.replay) == visits_of(spec)


def test_the_digest_changes_with_the_content_of_the_files(drawn: Path, database: Path) -> None:
    inventory = Inventory(
        nodes={},
        cloud=ServerSpec(node="server", files={"database": database}),
        replay=ReplaySpec(photos=drawn),
    )
    before = digest_of(inventory)
    assert digest_of(inventory) == before
    (drawn / "lab.testbed").mkdir()
    assert digest_of(inventory) == before
    digests = {before}
    wheel = drawn / "nearsight.whl"
    wheel.write_bytes(b"1")
    labels = (drawn / "labels.csv").read_text()
    for path, content in (
        (drawn / "queries" / "exhibit-1.jpg", b"another photo"),
        (drawn / "queries" / "exhibit-1.jpg", b"the other one"),
        (drawn / "labels.csv", labels.replace("2.jpg,exhibit-2", "2.jpg,exhibit-3").encode()),
        (database, database.read_bytes() + b"0"),
        (log_of(database), b"changes of a cloud that runs"),
    ):
        path.write_bytes(content)
        digests.add(digest_of(inventory))
    inventory = inventory.model_copy(update={"wheel": wheel})
    for content in (b"1", b"2"):
        wheel.write_bytes(content)
        digests.add(digest_of(inventory))
    assert len(digests) == 8
