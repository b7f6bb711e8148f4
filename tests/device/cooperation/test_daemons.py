"""Device daemons that share: keys, the report for `nearsight peers`, status and metrics."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from nearsight import Recognizer, RecognizerSecurity
from nearsight.common.config.base import SecuritySettings
from nearsight.common.errors import NotFound
from nearsight.common.metrics import DaemonMetrics
from nearsight.common.recognition.codec import features_to_proto
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.security import ClientSecurity, generate_keys, read_secret_key
from nearsight.common.rpc.server import ServerSettings
from nearsight.device.daemon import DeviceDaemon
from nearsight.device.peers.presence.identity import node_id_of_key
from nearsight.device.peers.report import PeersReport, report_from_proto
from nearsight.device.peers.settings import PeerSettings
from nearsight.device.recognizer_settings import PrefetchSettings, RecognizerSettings
from nearsight.device.settings import DeviceSettings, TierSettings
from nearsight.protos import peers_pb2, recognition_pb2
from nearsight.protos.recognition_pb2 import RecognizeRequest
from support.gallery import SETTINGS, exhibit_models, photo_features
from support.peer_nodes import fast_settings
from support.predicting_edge import PredictingEdge
from support.prefetching_devices import make_misses_costly
from support.waiting import LONG_S, wait_until

PREFETCH = PrefetchSettings(recognition=SETTINGS, timeout_s=LONG_S)


class Scene:
    """An edge, and device daemons with keys."""

    def __init__(self, stack: ExitStack, keys: Path) -> None:
        self._stack = stack
        self._keys = keys
        self.edge = PredictingEdge(exhibit_models(3))
        self.edge.delay_s = 0.05
        stack.callback(self.edge.stop)

    def daemon(self, name: str, peers: PeerSettings) -> tuple[DeviceDaemon, DaemonMetrics]:
        metrics = DaemonMetrics("device")
        settings = DeviceSettings(
            device_id=name,
            edge=TierSettings(endpoint=self.edge.endpoint),
            server=ServerSettings(listen="tcp://127.0.0.1:0", queue_timeout_s=LONG_S),
            recognizer=RecognizerSettings(timeout_s=LONG_S, prefetch=PREFETCH, peers=peers),
        )
        daemon = DeviceDaemon(settings, metrics)
        daemon.start()
        self._stack.callback(daemon.stop, 1.0)
        return daemon, metrics

    def stub(self, daemon: DeviceDaemon, service: str, module: object = peers_pb2) -> Stub:
        channel = self._stack.enter_context(Channel(daemon.endpoint, client_id="person"))
        return Stub(channel, module.DESCRIPTOR.services_by_name[service])  # type: ignore[attr-defined]

    def report(self, daemon: DeviceDaemon) -> PeersReport:
        stub = self.stub(daemon, "PeerReports")
        return report_from_proto(stub.get_peers(peers_pb2.GetPeersRequest(), timeout_s=LONG_S).message)

    def show(self, daemon: DeviceDaemon, number: int) -> str:
        message, blobs = features_to_proto(photo_features(number), 0)
        stub = self.stub(daemon, "Recognition", recognition_pb2)
        return str(
            stub.recognize(
                RecognizeRequest(features=message), timeout_s=LONG_S, blobs=blobs
            ).message.answered_by
        )


@pytest.fixture
def scene(stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    make_misses_costly(monkeypatch)
    return Scene(stack, tmp_path)


def _keys(folder: Path, *names: str) -> dict[str, Path]:
    """A secret key per name, and all public ones in the folder ``allowed``."""
    allowed = folder / "allowed"
    allowed.mkdir()
    secrets = {}
    for name in names:
        generate_keys(folder, name)
        secrets[name] = folder / f"{name}.key_secret"
        (folder / f"{name}.key").rename(allowed / f"{name}.key")
    return secrets


def test_daemons_with_keys_share_and_report_it(scene: Scene, tmp_path: Path) -> None:
    secrets = _keys(tmp_path, "phone-a", "phone-b")
    allowed = tmp_path / "allowed"
    first, _ = scene.daemon(
        "phone-a", fast_settings(enabled=True, secret_key_file=secrets["phone-a"], allowed=allowed)
    )
    where = f"phone-a@{scene.report(first).endpoint}"
    second, metrics = scene.daemon(
        "phone-b",
        fast_settings(enabled=True, secret_key_file=secrets["phone-b"], allowed=allowed, static=(where,)),
    )
    wait_until(lambda: len(scene.report(first).peers) == len(scene.report(second).peers) == 1, what="peers")
    for daemon in (first, second):
        assert scene.show(daemon, 0) == "edge"
        wait_until(
            lambda daemon=daemon: dict(daemon.details())["in the cache"].startswith("3 "), what="models"
        )
    assert scene.show(second, 2) == "device"
    assert len(scene.edge.fetched) == 3
    facts = dict(second.details())
    assert facts["devices nearby"] == "1"
    assert facts["models from devices nearby"].startswith("3, ")
    assert facts["models from the edge"] == "0, 0 B"
    assert dict(scene.report(first).facts)["models sent to devices nearby"].startswith("3, ")
    (of_second,), (of_first,) = scene.report(first).peers, scene.report(second).peers
    assert of_second.sent_bytes > 3 * 5000 < of_first.received_bytes
    assert facts["listings of the catalogue"].startswith("1, ")
    assert dict(scene.report(second).facts)["models here"].endswith(" not used yet")
    sample = metrics.registry.get_sample_value
    assert sample("nearsight_device_models_total", {"source": "peer"}) == 3
    assert sample("nearsight_device_models_total", {"source": "edge"}) == 0
    size_bytes = sample("nearsight_device_model_bytes_total", {"source": "peer"})
    assert size_bytes == sample("nearsight_device_prefetched_bytes_total")
    assert sample("nearsight_device_lists_total") == 1 and sample("nearsight_device_list_bytes_total") > 100
    assert sample("nearsight_device_peers") == 1


def test_a_daemon_that_does_not_share_has_no_peers_to_report(scene: Scene) -> None:
    daemon, metrics = scene.daemon("alone", PeerSettings())
    with pytest.raises(NotFound):
        scene.report(daemon)
    assert dict(daemon.details())["devices nearby"] == "sharing is off"
    assert metrics.registry.get_sample_value("nearsight_device_peers") is None


def test_an_application_uses_the_same_key_for_peers_and_tiers(scene: Scene, tmp_path: Path) -> None:
    secret, allowed = _keys(tmp_path, "phone")["phone"], tmp_path / "allowed"
    server_key = generate_keys(tmp_path, "edge").public_key
    security = RecognizerSecurity(edge=ClientSecurity(str(secret), server_key))
    settings = RecognizerSettings(peers=fast_settings(enabled=True, allowed=allowed))
    with Recognizer(scene.edge.endpoint, None, "museum", settings=settings, security=security) as device:
        report = device.peers()
        assert report is not None
        assert report.node_id == node_id_of_key(read_secret_key(secret).public)


def test_a_daemon_uses_its_key_for_peers_too(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    settings = DeviceSettings(
        security=SecuritySettings(secret_key_file=own),
        recognizer=RecognizerSettings(peers=PeerSettings(enabled=True, allowed=tmp_path)),
    )
    assert settings.recognizer_settings().peers.secret_key_file == own
    peers = PeerSettings(enabled=True, allowed=tmp_path, secret_key_file=other)
    settings = settings.model_copy(update={"recognizer": RecognizerSettings(peers=peers)})
    assert settings.recognizer_settings().peers.secret_key_file == other
    assert DeviceSettings().recognizer_settings().peers.secret_key_file is None
