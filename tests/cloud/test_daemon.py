import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nearsight.__main__ import main
from nearsight.cloud.daemon import CloudDaemon
from nearsight.common.catalogue.store import CatalogueStore
from nearsight.common.errors import AddressInUse, CorruptStore, NotFound, PeerError, Unavailable
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.common.rpc.server import ServerSettings
from support.cloud import CloudClient, cloud_settings, hold_recognition, running_cloud
from support.daemon_process import DaemonProcess, daemon_process
from support.disks import allow_writes, full_disk, refuse_writes, small_disk
from support.pictures import photo_jpeg, picture_jpeg
from support.waiting import LONG_S, wait_until


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "cloud.db"


def fill(database: Path, *seeds: int) -> None:
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        client.add({f"p{seed}": [picture_jpeg(seed)] for seed in seeds})


def test_a_restart_gives_the_same_answers_without_training(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [extract_features(load_image(photo_jpeg(seed)), 300) for seed in range(1, 7)]
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        client.add({f"p{seed}": [picture_jpeg(seed)] for seed in range(1, 6)})
        client.remove("p3")
        before = [client.recognize(query) for query in queries]
    monkeypatch.setattr("nearsight.common.recognition.extraction.extract_features", None)
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        assert [client.recognize(query) for query in queries] == before
    assert [response.object.object_id for response in before] == ["p1", "p2", "", "p4", "p5", ""]


def test_a_damaged_database_stops_the_start_and_is_not_touched(database: Path) -> None:
    database.write_bytes(b"something else entirely\n" * 300)
    with pytest.raises(CorruptStore) as caught:
        CloudDaemon(cloud_settings(database)).start()
    assert caught.value.advice
    assert database.read_bytes() == b"something else entirely\n" * 300


def damage_models(database: Path, *object_ids: str) -> None:
    """Invert a byte of each of these models."""
    with CatalogueStore(database) as store:
        written = {model.object_id: model for model in store.changes_since("museum", 0).written}
    for object_id in object_ids:
        data = database.read_bytes()
        position = data.index(written[object_id].views[0].descriptors.tobytes()[:100]) + 50
        database.write_bytes(data[:position] + bytes([data[position] ^ 255]) + data[position + 1 :])


def detail(client: CloudClient, name: str) -> str:
    """A detail of `nearsight status`, or an empty text."""
    return {one.name: one.value for one in client.check().details}.get(name, "")


def test_a_damaged_model_is_omitted_reported_and_repaired_by_adding_it_again(database: Path) -> None:
    fill(database, 1, 2, 3)
    damage_models(database, "p1")
    metrics = DaemonMetrics("cloud")
    with (
        capture_logs() as logs,
        running_cloud(database, metrics) as daemon,
        CloudClient(daemon.endpoint) as client,
    ):
        assert [client.shown(photo_jpeg(seed)) for seed in (1, 2, 3)] == [None, "p2", "p3"]
        assert [item.object_id for item in client.objects().objects] == ["p2", "p3"]
        assert detail(client, "catalogue museum").startswith("1 DAMAGED, add them again: p1; 2 objects")
        label = {"catalogue": "museum"}
        assert metrics.registry.get_sample_value("nearsight_cloud_damaged", label) == 1
        assert list(client.add({f"p{seed}": [picture_jpeg(seed)] for seed in (1, 2)}).replaced) == ["p1"]
        assert client.shown(photo_jpeg(1)) == "p1"
        assert "DAMAGED" not in detail(client, "catalogue museum")
    assert [line["object_id"] for line in logs if line["log_level"] == "error"] == ["p1"]
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        assert [client.shown(photo_jpeg(seed)) for seed in (1, 2, 3)] == ["p1", "p2", "p3"]


def test_a_damaged_model_can_be_removed(database: Path) -> None:
    fill(database, 1, 2)
    damage_models(database, "p1")
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        assert list(client.remove("p1").removed) == ["p1"]
        assert "DAMAGED" not in detail(client, "catalogue museum")


@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_a_database_file_deleted_while_in_use_loses_no_acknowledged_data(
    database: Path, tmp_path: Path, what: str
) -> None:
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        client.add({"p1": [picture_jpeg(1)]})
        if what == "deleted":
            for file in tmp_path.glob("cloud.db*"):
                file.unlink()
        else:
            CatalogueStore(tmp_path / "other.db").close()
            (tmp_path / "other.db").replace(database)
        with pytest.raises(Unavailable, match=f"was {what}") as caught:
            client.add({"p2": [picture_jpeg(2)]})
        assert "cloud.db.rescued" in caught.value.advice
        with pytest.raises(Unavailable, match=f"was {what}"):
            client.remove("p1")
        wait_until(lambda: f"was {what}" in detail(client, "database problem"), what="the status")
        assert client.shown(photo_jpeg(1)) == "p1"
    assert len([*tmp_path.glob("cloud.db.rescued*")]) == 1
    with running_cloud(tmp_path / "cloud.db.rescued") as daemon, CloudClient(daemon.endpoint) as client:
        assert client.shown(photo_jpeg(1)) == "p1"


def test_a_missing_database_is_no_empty_one(database: Path) -> None:
    with pytest.raises(NotFound) as caught:
        CloudDaemon(cloud_settings(database, create=False)).start()
    assert "nearsight cloud --create" in caught.value.advice
    assert not database.exists()


def test_a_cloud_starts_on_a_full_disk_and_accepts_changes_once_there_is_space(database: Path) -> None:
    fill(database, 1)
    with ExitStack() as stack:
        with capture_logs() as logs, full_disk():
            daemon = stack.enter_context(running_cloud(database))
            client = stack.enter_context(CloudClient(daemon.endpoint))
            assert client.check().ready
            assert client.shown(photo_jpeg(1)) == "p1"
            assert "disk" in detail(client, "database problem")
            with pytest.raises(Unavailable, match="changes are refused") as caught:
                client.add({"p2": [picture_jpeg(2)]})
            assert "free space" in caught.value.advice
            place = ["--database", str(database)]
            assert main(["cloud", "objects", "list", *place]) == 0
            assert main(["cloud", "objects", "remove", "p1", *place]) == 5
        wait_until(lambda: not detail(client, "database problem"), what="room")
        client.add({"p2": [picture_jpeg(2)]})
    assert any("read-only" in line["event"] for line in logs)
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        assert [client.shown(photo_jpeg(seed)) for seed in (1, 2)] == ["p1", "p2"]


@pytest.mark.system
@pytest.mark.needs("mounts")
@pytest.mark.parametrize("disk", ["read-only", "full"])
def test_a_cloud_process_serves_from_an_unwritable_disk(database: Path, tmp_path: Path, disk: str) -> None:
    fill(database, 1)
    place = tmp_path / "disk"
    place.mkdir()
    with small_disk(place):
        shutil.copy(database, place)
        refuse_writes(place, disk)
        flags = ["--database", str(place / "cloud.db"), "--set", "metrics_listen="]
        flags += ["--set", "recognition.training_features=300", "--set", "recognition.query_features=300"]
        with daemon_process(tmp_path, "cloud", *flags) as cloud, CloudClient(cloud.endpoint) as client:
            assert client.shown(photo_jpeg(1)) == "p1"
            with pytest.raises(Unavailable, match="changes are refused"):
                client.add({"p2": [picture_jpeg(2)]})
            allow_writes(place, disk)
            wait_until(lambda: not detail(client, "database problem"), what="room")
            client.add({"p2": [picture_jpeg(2)]})
            assert client.shown(photo_jpeg(2)) == "p2"


def test_a_port_in_use_is_an_error_and_leaves_no_threads(database: Path, tmp_path: Path) -> None:
    with running_cloud(database) as daemon:
        server = ServerSettings(listen=daemon.endpoint)
        threads = threading.active_count()
        second = CloudDaemon(cloud_settings(tmp_path / "other.db", server=server))
        with pytest.raises(AddressInUse):
            second.start()
        wait_until(lambda: threading.active_count() <= threads, what="the end of all threads")


def test_stopping_twice_is_harmless(database: Path) -> None:
    daemon = CloudDaemon(cloud_settings(database))
    daemon.start()
    daemon.stop(1.0)
    daemon.stop(1.0)


def test_stopping_finishes_running_requests_and_refuses_new_ones(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = CloudDaemon(cloud_settings(database))
    daemon.start()
    with CloudClient(daemon.endpoint) as client, ThreadPoolExecutor(2) as pool:
        client.add({"p1": [picture_jpeg(1)]})
        held, release = hold_recognition(monkeypatch)
        running = pool.submit(client.shown, photo_jpeg(1))
        assert held.wait(LONG_S)
        stopping = pool.submit(daemon.stop, LONG_S)
        wait_until(daemon.server._stopping.is_set, what="the stop")
        with pytest.raises(Unavailable), CloudClient(daemon.endpoint) as late:
            late.shown(photo_jpeg(1))
        assert not stopping.done()
        release.set()
        assert running.result(LONG_S) == "p1"
        stopping.result(LONG_S)


def test_metrics_show_the_catalogues(database: Path) -> None:
    metrics = DaemonMetrics("cloud")
    daemon = CloudDaemon(cloud_settings(database), metrics)
    daemon.start()
    try:
        with CloudClient(daemon.endpoint) as client:
            client.add({"p1": [picture_jpeg(1)]})
            client.shown(photo_jpeg(1))
        label = {"catalogue": "museum"}
        assert metrics.registry.get_sample_value("nearsight_cloud_objects", label) == 1
        assert metrics.registry.get_sample_value("nearsight_cloud_indexed_revision", label) == 1
    finally:
        daemon.stop(1.0)


def cloud_process(database: Path) -> AbstractContextManager[DaemonProcess]:
    """A real `nearsight cloud`."""
    flags = ["--database", str(database), "--create", "--set", "metrics_listen="]
    return daemon_process(database.parent, "cloud", *flags)


@pytest.mark.system
def test_no_acknowledged_object_is_lost_if_the_daemon_is_killed(database: Path) -> None:
    acknowledged: list[str] = []
    enough = threading.Event()

    def add_until_it_dies(endpoint: str, client_number: int) -> None:
        with CloudClient(endpoint) as client:
            for number in range(1000):
                name = f"c{client_number}-{number}"
                try:
                    client.add(
                        {name: [picture_jpeg(100 * client_number + number)]}, index_later=bool(number % 3)
                    )
                except PeerError:
                    return
                acknowledged.append(name)
                if len(acknowledged) >= 12:
                    enough.set()

    with cloud_process(database) as cloud:
        threads = [
            threading.Thread(target=add_until_it_dies, args=(cloud.endpoint, number)) for number in (1, 2)
        ]
        for thread in threads:
            thread.start()
        assert enough.wait(LONG_S)
        cloud.kill()
        for thread in threads:
            thread.join(LONG_S)
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        stored = {item.object_id for item in client.objects().objects}
    assert set(acknowledged) <= stored
    assert len(stored) <= len(acknowledged) + 2, "at most what was in flight goes in without an answer"


def test_sigterm_ends_the_daemon_cleanly_and_it_can_be_started_again(database: Path) -> None:
    with cloud_process(database) as cloud:
        with CloudClient(cloud.endpoint) as client:
            client.add({"p1": [picture_jpeg(1)]})
        assert cloud.stop() == 0, cloud.log
        assert "Traceback" not in cloud.log
    assert not database.with_name("cloud.db-wal").exists(), (
        "the log is merged when the last connection closes"
    )
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        assert client.shown(photo_jpeg(1)) == "p1"


def test_objects_of_an_earlier_training_are_named_at_the_start(database: Path) -> None:
    fill(database, 1, 2)
    with CatalogueStore(database) as store, store.transaction() as connection:
        connection.execute("UPDATE objects SET training = 'generation=2' WHERE object_id = 'p1'")
    with capture_logs() as logs, running_cloud(database):
        pass
    (warning,) = [entry for entry in logs if "another version" in entry["event"]]
    assert (warning["catalogue"], warning["objects"]) == ("museum", 1)
