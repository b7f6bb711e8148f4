import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from nearsight.cloud.daemon import CloudDaemon
from nearsight.cloud.store import CatalogueStore
from nearsight.common.errors import AddressInUse, CorruptStore, PeerError, Unavailable
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.recognition.extraction import OrbExtractor
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.rpc.server import ServerSettings
from support.cloud import CloudClient, cloud_settings, running_cloud
from support.daemon_process import DaemonProcess, daemon_process
from support.pictures import photo_jpeg, picture_jpeg
from support.waiting import wait_until


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "cloud.db"


def fill(database: Path, *seeds: int) -> None:
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        client.add({f"p{seed}": [picture_jpeg(seed)] for seed in seeds})


def test_a_restart_gives_the_same_answers_without_training(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = [OrbExtractor().extract(load_image(photo_jpeg(seed)), 300) for seed in range(1, 7)]
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        client.add({f"p{seed}": [picture_jpeg(seed)] for seed in range(1, 6)})
        client.remove("p3")
        before = [client.recognize(query) for query in queries]
    monkeypatch.setattr(OrbExtractor, "extract", None)
    with running_cloud(database) as daemon, CloudClient(daemon.endpoint) as client:
        assert [client.recognize(query) for query in queries] == before
    assert [response.object.object_id for response in before] == ["p1", "p2", "", "p4", "p5", ""]


def test_a_damaged_database_stops_the_start_and_is_not_touched(database: Path) -> None:
    database.write_bytes(b"something else entirely\n" * 300)
    with pytest.raises(CorruptStore) as caught:
        CloudDaemon(cloud_settings(database)).start()
    assert caught.value.advice
    assert database.read_bytes() == b"something else entirely\n" * 300


def test_a_damaged_model_stops_the_start_and_frees_the_port(database: Path) -> None:
    fill(database, 1)
    with CatalogueStore(database) as store:
        descriptors = store.changes_since("museum", 0).written[0].views[0].descriptors.tobytes()
    data = database.read_bytes()
    position = data.index(descriptors[:100]) + 50
    database.write_bytes(data[:position] + bytes([data[position] ^ 255]) + data[position + 1 :])
    threads = threading.active_count()
    with pytest.raises(CorruptStore, match="p1"):
        CloudDaemon(cloud_settings(database)).start()
    wait_until(lambda: threading.active_count() <= threads, what="the end of all threads")


def test_a_taken_port_is_refused_and_nothing_stays_open(database: Path, tmp_path: Path) -> None:
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


def test_stopping_finishes_what_runs_and_refuses_what_is_new(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, release = threading.Event(), threading.Event()
    recognize = ObjectRecognizer.recognize

    def slow(self: ObjectRecognizer, features: Features) -> object:
        held.set()
        assert release.wait(20)
        return recognize(self, features)

    daemon = CloudDaemon(cloud_settings(database))
    daemon.start()
    with CloudClient(daemon.endpoint) as client, ThreadPoolExecutor(2) as pool:
        client.add({"p1": [picture_jpeg(1)]})
        monkeypatch.setattr(ObjectRecognizer, "recognize", slow)
        running = pool.submit(client.shown, photo_jpeg(1))
        assert held.wait(10)
        stopping = pool.submit(daemon.stop, 10.0)
        wait_until(daemon.server._stopping.is_set, what="the stop")
        with pytest.raises(Unavailable), CloudClient(daemon.endpoint) as late:
            late.shown(photo_jpeg(1))
        assert not stopping.done()
        release.set()
        assert running.result(30) == "p1"
        stopping.result(30)


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
    return daemon_process(database.parent, "cloud", "--database", str(database), "--set", "metrics_listen=")


def test_nothing_acknowledged_is_lost_when_the_daemon_is_killed(database: Path) -> None:
    acknowledged: list[str] = []
    enough = threading.Event()

    def add_until_it_dies(endpoint: str, client_number: int) -> None:
        with CloudClient(endpoint, timeout_s=5.0) as client:
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
        assert enough.wait(30)
        cloud.kill()
        for thread in threads:
            thread.join(20)
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
