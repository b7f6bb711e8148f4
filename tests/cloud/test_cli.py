import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nearsight.__main__ import main
from nearsight.cloud.daemon import CloudDaemon
from nearsight.common.catalogue import ingestion
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.catalogue.training import NewObject, TrainingOutcome, train_objects
from nearsight.common.config.base import SecuritySettings
from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.allow_list import Role, allow_client
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.security import ClientSecurity, generate_keys
from nearsight.protos import catalogue_pb2
from support.cloud import CloudClient, running_cloud
from support.daemon_process import daemon_process
from support.leash import leashed
from support.pictures import photo_jpeg, picture_jpeg
from support.waiting import LONG_S, wait_until

LILIES = "museum/references/0001.jpg"
CLOUD = "tcp://127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "museum" / "references"
    images.mkdir(parents=True)
    for number in range(3):
        (images / f"{number:04}.jpg").write_bytes(picture_jpeg(number))
    (images / "torn.jpg").write_bytes(picture_jpeg(9)[:500])
    (images.parent / "objects.csv").write_text("object_id,label,artist\n0001,Water Lilies,Monet\n")
    return images.parent


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # where the default, cloud.db, is
    return tmp_path / "cloud.db"


@pytest.fixture
def daemon(database: Path) -> Iterator[CloudDaemon]:
    # The daemon's log must not get into what the commands print.
    with capture_logs(), running_cloud(database) as running:
        yield running


def test_a_folder_is_ingested_into_a_database(
    folder: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cloud", "ingest", str(folder), "--catalogue", "museum", "--threads", "2"]) == 0
    shown = capsys.readouterr()
    assert "3 added, 0 replaced, 0 unchanged, 1 rejected" in shown.out
    assert "torn.jpg" in shown.err
    assert main(["cloud", "ingest", str(folder), "--json"]) == 0, "the only catalogue is meant"
    report = json.loads(capsys.readouterr().out)
    assert (report["unchanged"], report["rejected"], report["total"]) == (3, 1, 4)
    with CatalogueStore(database, create=False) as store:
        assert store.objects("museum")[1].label == "Water Lilies"


def test_a_folder_is_ingested_into_a_running_cloud(
    folder: Path, daemon: CloudDaemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH_OBJECTS", 2)
    command = ["cloud", "ingest", str(folder), "--cloud", daemon.endpoint, "--catalogue", "museum", "--json"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["added"], report["rejected"]) == (3, 1)
    assert report["problems"][0]["path"].endswith("torn.jpg")
    with CloudClient(daemon.endpoint) as client:
        found = client.recognize(photo_jpeg(1)).object
        assert (found.label, dict(found.metadata)) == ("Water Lilies", {"artist": "Monet"})
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["unchanged"] == 3


def test_a_running_cloud_serves_objects_ingested_into_its_database(
    folder: Path, daemon: CloudDaemon, database: Path
) -> None:
    assert main(["cloud", "ingest", str(folder), "--database", str(database), "--catalogue", "m"]) == 0
    with CloudClient(daemon.endpoint, catalogue="") as client:

        def serves() -> bool:
            details = {detail.name: detail.value for detail in client.check().details}
            text = details.get("catalogue m", "")
            return "3 objects, revision 1" in text and "built in" in text

        wait_until(serves, what="the catalogue")
        # The store is listed before the index that holds it is swapped in.
        wait_until(lambda: client.shown(photo_jpeg(2)) == "0002", what="the index")


@pytest.mark.parametrize("where", ["database", "cloud"])
def test_objects_are_added_listed_and_removed(
    where: str, daemon: CloudDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--cloud", daemon.endpoint] if where == "cloud" else ["--database", "cloud.db"]
    image = tmp_path / "lilies.jpg"
    image.write_bytes(picture_jpeg(1))
    add = ["cloud", "objects", "add", str(image), "--label", "Water Lilies", "--metadata", "artist=Monet"]
    assert main([*add, "--catalogue", "museum", *place]) == 0
    assert main([*add, *place]) == 0
    assert capsys.readouterr().out.split() == ["added", "lilies", "unchanged", "lilies"]
    assert main(["cloud", "objects", "list", "--json", *place]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(item["object_id"], item["label"], item["version"]) for item in listed] == [
        ("lilies", "Water Lilies", 1)
    ]
    assert main(["cloud", "objects", "list", *place]) == 0
    assert "Water Lilies" in capsys.readouterr().out
    assert main(["cloud", "catalogues", *place]) == 0
    assert "museum" in capsys.readouterr().out
    assert main(["cloud", "objects", "remove", "lilies", "gone", *place]) == 2
    shown = capsys.readouterr()
    assert shown.out == "removed lilies\n"
    assert "gone" in shown.err


def one_line_error(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["ingest", "nowhere", "--catalogue", "m"], 2, "no folder"),
        (["ingest", ".", "--catalogue", "m"], 2, "no images"),
        (["ingest", "museum"], 2, "no catalogue was named"),
        (["ingest", "museum", "--catalogue", "a b"], 2, "is not a valid catalogue name"),
        (["ingest", "museum", "--database", "x.db", "--cloud", CLOUD], 2, "both --database and --cloud"),
        (["ingest", "museum", "--set", "max_catalogues=9", "--cloud", CLOUD], 2, "both --set and --cloud"),
        *(
            ([*command, "--config", "cloud.toml", "--cloud", CLOUD], 2, "both --config and --cloud")
            for command in (
                ["ingest", "museum"],
                ["catalogues"],
                ["catalogues", "remove", "m"],
                ["objects", "list"],
                ["objects", "add", LILIES],
                ["objects", "remove", "0001"],
            )
        ),
        (["catalogues", "--key", "me.key_secret"], 2, "keys are given, but no running cloud"),
        (["objects", "list", "--server-key", "cloud.key"], 2, "keys are given, but no running cloud"),
        (["objects", "list"], 2, "no database"),
        (["objects", "list", "--cloud", CLOUD, "--key", "k"], 2, "go together"),
        (["objects", "add", "missing.jpg", "--catalogue", "m"], 2, "no image file 'missing.jpg'"),
        (["objects", "add", "museum/references/torn.jpg", "--catalogue", "m"], 2, "was rejected"),
        (["objects", "add", LILIES], 2, "no catalogue was named"),
        (["objects", "add", LILIES, "--catalogue", "a b"], 2, "is not a valid catalogue name"),
        (["objects", "add", LILIES, "--metadata", "x"], 2, "KEY=VALUE"),
        (["--database", "x.db", "catalogues"], 2, "put it at the end: nearsight cloud catalogues"),
        (["objects", "remove", "\udcff", "--cloud", CLOUD], 2, r"'\udcff' is not valid UTF-8"),
        (["objects", "list", "--catalogue", "\udcff", "--cloud", CLOUD], 2, "in UTF-8"),
        (["objects", "add", LILIES, "--label", "a\udcff", "--catalogue", "m"], 2, "in UTF-8"),
        (["objects", "add", LILIES, "--metadata", "a=\udcff", "--catalogue", "m"], 2, "in UTF-8"),
        (["catalogues", "--database", "x.db", "remove", "m"], 2, "nearsight cloud catalogues remove"),
    ],
)
def test_mistakes_get_one_line_and_an_exit_code(
    folder: Path,
    database: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    Path("cloud.toml").touch()
    assert main(["cloud", *arguments]) == code
    assert said in one_line_error(capsys)
    if arguments[0] == "ingest" or "catalogue" in said:
        assert not database.exists(), "a mistake leaves no empty database"


def test_a_damaged_database_is_refused_by_every_command(
    folder: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database.write_bytes(b"precious\n" * 100)
    for command in (["ingest", str(folder), "--catalogue", "m"], ["catalogues"], ["objects", "list"], []):
        assert main(["cloud", *command]) == 5
        assert "not a database" in one_line_error(capsys)
    assert database.read_bytes() == b"precious\n" * 100


def test_a_folder_without_usable_images_fails(
    tmp_path: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = tmp_path / "bad"
    images.mkdir()
    (images / "a.jpg").write_bytes(b"no")
    assert main(["cloud", "ingest", str(images), "--catalogue", "m"]) == 2
    assert "none of the 1 objects" in one_line_error(capsys)


def test_an_interrupted_ingestion_explains_how_to_continue(
    folder: Path, database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(objects: Sequence[NewObject], settings: RecognitionSettings) -> TrainingOutcome:
        os.kill(os.getpid(), signal.SIGINT)
        return train_objects(objects, settings)

    monkeypatch.setattr("nearsight.common.catalogue.database_catalogue.train_objects", interrupted)
    assert main(["cloud", "ingest", str(folder), "--catalogue", "m"]) == 130
    shown = capsys.readouterr()
    first, last = [line for line in shown.err.splitlines() if line.startswith("interrupted")]
    assert "Ctrl-C again ends at once" in first
    assert "repeat the command to continue" in last
    assert "3 added, 0 replaced, 0 unchanged, 1 rejected" in shown.out
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


SLOW_INGESTION = """
import sys
import threading
from nearsight.__main__ import main
from nearsight.common.catalogue import database_catalogue
from nearsight.common.catalogue.training import TrainingOutcome

def train(objects, settings):
    print("training", flush=True)
    sys.stdin.readline()
    return TrainingOutcome((), (), ())

def close(catalogue):
    print("closing", flush=True)
    threading.Event().wait()

database_catalogue.train_objects = train
database_catalogue.DatabaseCatalogue.close = close
sys.exit(main(["cloud", "ingest", *sys.argv[1:]]))
"""
"""A batch ends after a line of standard input; closing the catalogue never ends."""


@pytest.mark.parametrize("stage", ["training", "closing"])
def test_a_second_interrupt_ends_an_ingestion_at_once(folder: Path, database: Path, stage: str) -> None:
    command = leashed("-c", SLOW_INGESTION, str(folder), "--catalogue", "m")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, bufsize=1, cwd=database.parent
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "training\n"
            process.send_signal(signal.SIGINT)
            assert any("the running batches are finished" in line for line in process.stderr)
            if stage == "closing":
                process.stdin.write("\n")
                assert "0 added" in process.stdout.readline()
                assert process.stdout.readline() == "closing\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(LONG_S) == -signal.SIGINT
        finally:
            process.kill()
    assert main(["cloud", "ingest", str(folder), "--catalogue", "m"]) == 0, "the database is usable"


def test_the_help_distinguishes_the_daemon_from_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cloud", "--help"]) == 0
    shown = capsys.readouterr().out
    for word in ("--listen", "--database", "ingest", "objects", "catalogues", "SIGTERM"):
        assert word in shown


def test_the_log_lists_changes_over_the_network_and_in_the_file(
    tmp_path: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, allowed = tmp_path / "keys", tmp_path / "keys" / "allowed"
    public = {name: generate_keys(keys, name).public_key for name in ("cloud", "phone", "curator")}
    allow_client(keys / "phone.key", allowed)
    allow_client(keys / "curator.key", allowed, role=Role.WRITER, catalogues=["museum"])
    security = SecuritySettings(secret_key_file=keys / "cloud.key_secret", allowed_clients=allowed)
    as_local = ["--database", str(database)]
    picture = tmp_path / "0001.jpg"
    picture.write_bytes(picture_jpeg(1))
    assert main(["cloud", "objects", "add", str(picture), "--catalogue", "shop", *as_local]) == 0
    with capture_logs(), running_cloud(database, security=security) as daemon:

        def command(key: str, *words: str) -> int:
            place = ("--cloud", daemon.endpoint, "--server-key", str(keys / "cloud.key"))
            return main(["cloud", *words, *place, "--key", str(keys / f"{key}.key_secret")])

        forged = ("objects", "add", str(picture), "--catalogue", "forged")
        assert command("phone", *forged) == command("curator", *forged) == 3
        assert command("phone", "objects", "remove", "0001", "--catalogue", "shop") == 3
        assert command("phone", "catalogues", "remove", "shop") == 3
        capsys.readouterr()
        assert command("curator", "objects", "add", str(picture), "--catalogue", "museum") == 0
        assert command("curator", "catalogues") == 0
        shown = capsys.readouterr().out
        assert "museum" in shown
        assert "shop" not in shown
        own = ClientSecurity(keys / "curator.key_secret", keys / "cloud.key")
        with Channel(daemon.endpoint, client_id="test", security=own) as channel:
            catalogue = Stub(channel, catalogue_pb2.DESCRIPTOR.services_by_name["Catalogue"])
            # This key may use one catalogue only, which is not meant.
            with pytest.raises(InvalidArgument, match="no catalogue was named"):
                catalogue.remove_catalogue(catalogue_pb2.RemoveCatalogueRequest(), timeout_s=LONG_S)
        assert command("curator", "catalogues", "remove", "museum") == 0
        capsys.readouterr()
    assert main(["cloud", "log", *as_local, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [
        [one[key] for key in ("author", "public_key", "catalogue", "action", "object_id")] for one in entries
    ] == [
        ["local", "", "shop", "began", ""],
        ["local", "", "shop", "added", "0001"],
        ["curator", public["curator"], "museum", "began", ""],
        ["curator", public["curator"], "museum", "added", "0001"],
        ["curator", public["curator"], "museum", "removed", ""],
    ]
    assert main(["cloud", "log", *as_local, "--catalogue", "museum", "--last", "1"]) == 0
    assert "removed the catalogue" in capsys.readouterr().out
    assert main(["cloud", "catalogues", "remove", "shop", *as_local]) == 0
    assert "removed shop with 1 object\n" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["database", "cloud"])
def test_a_picture_stored_under_another_id_is_refused_or_allowed(
    where: str, folder: Path, daemon: CloudDaemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--cloud", daemon.endpoint] if where == "cloud" else ["--database", "cloud.db"]
    place += ["--catalogue", "museum"]
    (folder / "references" / "0009.jpg").write_bytes((folder / "references" / "0001.jpg").read_bytes())
    copy = tmp_path / "copy.jpg"
    copy.write_bytes(picture_jpeg(1))
    assert main(["cloud", "ingest", str(folder), *place]) == 0
    shown = capsys.readouterr()
    assert "3 added" in shown.out
    (line,) = [line for line in shown.err.splitlines() if line.startswith("rejected 0009")]
    assert "'0001'" in line
    assert "--allow-similar" in line
    assert main(["cloud", "objects", "add", str(copy), *place]) == 2
    assert "'0001'" in one_line_error(capsys)
    assert main(["cloud", "objects", "add", str(copy), "--allow-similar", *place]) == 0
    assert main(["cloud", "ingest", str(folder), "--allow-similar", *place]) == 0
    assert "1 added" in capsys.readouterr().out
    if where == "cloud":
        with CloudClient(daemon.endpoint) as client:
            wait_until(
                lambda: client.shown(photo_jpeg(1)) in {"0001", "0009", "copy"}, what="one of the three"
            )


@pytest.mark.parametrize("where", ["database", "cloud"])
def test_exchanged_pictures_are_ingested_although_each_is_still_stored_under_the_other_id(
    where: str,
    folder: Path,
    daemon: CloudDaemon,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nearsight.common.catalogue.ingestion.BATCH_OBJECTS", 1)
    place = ["--cloud", daemon.endpoint] if where == "cloud" else ["--database", "cloud.db"]
    ingest = ["cloud", "ingest", str(folder), *place, "--catalogue", "museum"]
    assert main(ingest) == 0
    for name, seed in (("0000", 2), ("0002", 0)):
        (folder / "references" / f"{name}.jpg").write_bytes(picture_jpeg(seed))
    assert main(ingest) == 0
    capsys.readouterr()
    assert main(ingest) == 0
    assert "3 unchanged, 1 rejected" in capsys.readouterr().out


def recognised(database: Path, *seeds: int) -> list[str | None]:
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint, catalogue="") as client:
        return [client.shown(photo_jpeg(seed)) for seed in seeds]


def test_a_cloud_is_backed_up_while_it_serves_and_restored_when_it_is_stopped(
    folder: Path, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--database", str(database), "--create", "--set", "metrics_listen="]
    with daemon_process(tmp_path, "cloud", *flags) as cloud:
        place = ["--cloud", cloud.endpoint, "--catalogue", "museum"]
        assert main(["cloud", "ingest", str(folder), *place]) == 0
        assert main(["cloud", "backup", "monday.db"]) == 0
        assert main(["cloud", "objects", "remove", "0000", *place]) == 0
        assert main(["cloud", "backup", "monday.db"]) == 2
        assert "exists, and is not overwritten" in one_line_error(capsys)
        assert main(["cloud", "restore", "monday.db"]) == 5
        assert "in use; stop the cloud" in one_line_error(capsys)
        assert cloud.stop() == 0
    assert recognised(database, 0, 1) == [None, "0001"]
    assert main(["cloud", "restore", "monday.db"]) == 0
    shown = capsys.readouterr().out
    assert "1 catalogues, 3 objects; the former database is cloud.db.replaced" in shown
    assert recognised(database, 0, 1) == ["0000", "0001"]
    assert recognised(database.with_name("cloud.db.replaced"), 0, 1) == [None, "0001"]


def test_a_link_to_a_database_stays_one_when_a_backup_is_restored(folder: Path, database: Path) -> None:
    link = database.parent / "links" / "cloud.db"
    link.parent.mkdir()
    link.symlink_to(database)
    assert main(["cloud", "ingest", str(folder), "--catalogue", "museum"]) == 0
    assert main(["cloud", "backup", "monday.db"]) == 0
    assert main(["cloud", "restore", "monday.db", "--database", str(link)]) == 0
    assert [*link.parent.iterdir()] == [link]
    assert link.readlink() == database
    assert database.with_name("cloud.db.replaced").exists()


def test_a_damaged_database_is_replaced_by_its_backup(
    folder: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cloud", "ingest", str(folder), "--catalogue", "museum"]) == 0
    assert main(["cloud", "backup", "monday.db"]) == 0
    database.write_bytes(database.read_bytes()[:9000])
    assert main(["cloud"]) == 5
    assert "nearsight cloud restore BACKUP" in one_line_error(capsys)
    assert main(["cloud", "restore", "monday.db"]) == 0
    assert recognised(database, 0, 1) == ["0000", "0001"]


@pytest.mark.parametrize(
    ("backup", "code", "said"),
    [(None, 2, "no database"), (b"no database", 5, "is not a database"), (b"", 5, "it is empty")],
)
def test_files_that_are_no_backups_are_not_restored(
    folder: Path,
    database: Path,
    capsys: pytest.CaptureFixture[str],
    backup: bytes | None,
    code: int,
    said: str,
) -> None:
    assert main(["cloud", "ingest", str(folder), "--catalogue", "museum"]) == 0
    before = database.read_bytes()
    if backup is not None:
        Path("monday.db").write_bytes(backup)
    assert main(["cloud", "restore", "monday.db"]) == code
    assert said in one_line_error(capsys)
    assert database.read_bytes() == before
    assert not [*database.parent.glob("*.replaced*")]


@pytest.mark.parametrize("place", [".", "folder"])
def test_a_backup_does_not_replace_a_folder(
    folder: Path, database: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    Path("folder").mkdir()
    assert main(["cloud", "ingest", str(folder), "--catalogue", "museum"]) == 0
    assert main(["cloud", "backup", "monday.db", "--database", str(database)]) == 0
    capsys.readouterr()
    assert main(["cloud", "restore", "monday.db", "--database", place]) == 5
    assert f"{place} is a folder; name a file, such as cloud.db" in one_line_error(capsys)


def test_a_backup_with_a_damaged_object_names_it(
    folder: Path, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cloud", "ingest", str(folder), "--catalogue", "museum"]) == 0
    with CatalogueStore(database) as store:
        store.rows("UPDATE objects SET model = zeroblob(40) WHERE object_id = '0001'")
    assert main(["cloud", "backup", "monday.db"]) == 0
    assert main(["cloud", "restore", "monday.db"]) == 0
    assert "damaged, add them again: museum/0001" in capsys.readouterr().err
    assert main(["cloud", "ingest", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["replaced"], report["unchanged"]) == (1, 2)
    assert recognised(database, 0, 1) == ["0000", "0001"]


def test_a_missing_database_is_refused_and_named(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cloud", "--database", "nosuch.db"]) == 2
    error = one_line_error(capsys)
    assert "there is no database nosuch.db" in error
    assert "nearsight cloud --create" in error
    assert not Path("nosuch.db").exists()
