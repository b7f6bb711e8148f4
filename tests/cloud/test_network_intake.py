"""Networks uploaded to a running cloud: in chunks, with keys, measured in another process."""

import errno
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from nearsight import InvalidArgument, NotFound, Recognizer, Unavailable
from nearsight.__main__ import main
from nearsight.cloud import network_intake
from nearsight.cloud.daemon import CloudDaemon
from nearsight.cloud.network_intake import AddedNetwork, NetworkIntake, RemoteNetworks
from nearsight.cloud.networks import CloudNetworks
from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.config.base import SecuritySettings
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.repository import manifest_of_file
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.rpc.allow_list import Role, allow_client
from nearsight.common.rpc.client import Channel
from nearsight.common.rpc.security import ClientSecurity, generate_keys
from nearsight.common.rpc.service import CallContext
from nearsight.protos import inference_pb2 as pb
from support.cloud import running_cloud
from support.networks import COLOURS, adder_network, colour_network, endless_network, split_network
from support.recognizers import PATIENT
from support.waiting import LONG_S

MB = 1 << 20


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    with capture_logs():  # they must not get into what the commands print
        yield tmp_path


class Pieces:
    """Records the offsets of received chunks; fails or damages some of them first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offsets: list[int] = []
        self.fail_at: list[int] = []
        self.damage_at: list[int] = []
        real = NetworkIntake.put_model_chunk

        def put(
            service: NetworkIntake, request: pb.PutModelChunkRequest, context: CallContext
        ) -> pb.PutModelChunkResponse:
            if context.blobs:
                self.offsets.append(request.offset)
                if request.offset in self.fail_at:
                    self.fail_at.remove(request.offset)
                    raise Unavailable("not now")
                if request.offset in self.damage_at:
                    self.damage_at.remove(request.offset)
                    context.blobs = [memoryview(bytes(len(context.blobs[0])))]
            return real(service, request, context)

        monkeypatch.setattr(NetworkIntake, "put_model_chunk", put)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Pieces:
    return Pieces(monkeypatch)


@pytest.fixture
def cloud(place: Path, pieces: Pieces) -> Iterator[CloudDaemon]:
    with running_cloud(place / "cloud.db", models=ModelSettings(folder=place / "models")) as daemon:
        yield daemon


@pytest.fixture
def remote(cloud: CloudDaemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteNetworks]:
    """A client that repeats failed calls without a delay."""
    monkeypatch.setattr(network_intake, "BACK_OFF_S", (0.0,) * len(network_intake.BACK_OFF_S))
    with Channel(cloud.endpoint, client_id="test") as channel:
        yield RemoteNetworks(channel)


def parts(place: Path) -> list[Path]:
    return [*(place / "models").glob("*.part")]


def test_a_network_is_uploaded_executed_replaced_and_removed(
    place: Path, cloud: CloudDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    colour_network(place / "colours.onnx")
    (place / "labels.txt").write_text("\n".join(COLOURS))
    to = ["--to", cloud.endpoint]
    assert main(["models", "add", "colours.onnx", "--labels", "labels.txt", *to]) == 0
    told = capsys.readouterr().out
    assert f"added colours, version 1, in {cloud.endpoint}: 3 classes of photos" in told
    assert "in memory; loads in" in told
    tensor = np.ones((1, 3, 8, 8), np.float32)
    with Recognizer(None, cloud.endpoint, "colours", settings=PATIENT) as recognizer:
        assert recognizer.infer(tensor).version == 1
        again = ["models", "add", "colours.onnx", "--labels", "labels.txt", *to]
        assert main(again) == main([*again, "--least-confidence", "0.9"]) == 0
        told = capsys.readouterr().out
        assert "unchanged colours, version 1" in told
        assert "replaced colours, version 2" in told
        assert recognizer.infer(tensor).version == 2
        assert main(["models", "remove", "colours", "--from", cloud.endpoint]) == 0
        with pytest.raises(NotFound):
            recognizer.infer(tensor)
    assert [*(place / "models").iterdir()] == []
    capsys.readouterr()
    assert main(["cloud", "log", "--database", "cloud.db"]) == 0
    logged = capsys.readouterr().out
    assert [logged.count(f"{done} the network") for done in ("added", "replaced", "removed")] == [1, 1, 1]
    assert main(["models", "remove", "colours", "--from", cloud.endpoint, "--folder", "models"]) == 2
    assert main(["models", "remove", "colours", "--from", cloud.endpoint]) == 2


def test_only_writers_add_and_remove_networks_of_their_names(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, allowed = place / "keys", place / "keys" / "allowed"
    for name in ("cloud", "phone", "curator"):
        generate_keys(keys, name)
    allow_client(keys / "phone.key", allowed)
    allow_client(
        keys / "curator.key", allowed, role=Role.WRITER, catalogues=["birds", "trees"], writes=["birds"]
    )
    security = SecuritySettings(secret_key_file=keys / "cloud.key_secret", allowed_clients=allowed)
    adder_network(place / "birds.onnx")
    models = ModelSettings(folder=place / "models")
    with running_cloud(place / "cloud.db", models=models, security=security) as daemon:

        def command(key: str, verb: str, what: str, place: str, *words: str) -> int:
            with_keys = ["--key", str(keys / f"{key}.key_secret"), "--server-key", str(keys / "cloud.key")]
            return main(["models", verb, what, place, daemon.endpoint, *words, *with_keys])

        assert command("phone", "add", "birds.onnx", "--to") == 3
        assert "the key 'phone' has the role reader" in capsys.readouterr().err
        for name in ("trees", "fish"):
            assert command("curator", "add", "birds.onnx", "--to", "--name", name) == 3
        assert "may not" in capsys.readouterr().err
        assert daemon.networks.repository.manifests() == {}
        assert not parts(place)
        stands_in = ("--stands-in-for", "trees", "--accuracy", "0.5")
        assert command("curator", "add", "birds.onnx", "--to", *stands_in) == 3
        assert "may not change the catalogue 'trees'" in capsys.readouterr().err
        assert daemon.networks.repository.manifests() == {}
        assert command("curator", "add", "birds.onnx", "--to") == 0
        assert command("phone", "remove", "birds", "--from") == 3
        own = ClientSecurity(keys / "curator.key_secret", keys / "cloud.key")
        with (
            Channel(daemon.endpoint, client_id="test", security=own) as channel,
            pytest.raises(InvalidArgument, match="no catalogue was named"),
        ):
            RemoteNetworks(channel).remove("")  # this key may change one network only, which is not meant
        assert [*daemon.networks.repository.manifests()] == ["birds"]
        assert command("curator", "remove", "birds", "--from") == 0
    capsys.readouterr()
    assert main(["cloud", "log", "--database", "cloud.db", "--json"]) == 0
    log = json.loads(capsys.readouterr().out)
    assert [(one["author"], one["catalogue"], one["action"]) for one in log] == [
        ("curator", "birds", "added"),
        ("curator", "birds", "removed"),
    ]


def test_failed_or_damaged_chunks_are_sent_again(
    place: Path, cloud: CloudDaemon, remote: RemoteNetworks, pieces: Pieces
) -> None:
    file = colour_network(place / "large.onnx", weights_mb=3)
    pieces.fail_at, pieces.damage_at, progress = [MB], [2 * MB, 2 * MB], []
    taken = remote.add(file, manifest_of_file(file, "large"), progress.append)
    assert pieces.offsets == [0, MB, MB, 2 * MB, 2 * MB, 2 * MB, 3 * MB]
    assert sum(progress) == file.stat().st_size
    assert min(progress) >= 0
    here = cloud.networks.repository
    assert here.checked_path(here.get("large")).read_bytes() == file.read_bytes()
    assert taken.manifest == here.get("large")


def test_an_interrupted_upload_is_resumed_also_after_a_restart_of_the_cloud(
    place: Path, pieces: Pieces
) -> None:
    file = colour_network(place / "large.onnx", weights_mb=3)
    wanted, models = manifest_of_file(file, "large"), ModelSettings(folder=place / "models")

    def interrupt(more_bytes: int) -> None:
        if len(pieces.offsets) == 2:
            raise KeyboardInterrupt

    for progress in (interrupt, lambda _: None):
        with (
            running_cloud(place / "cloud.db", models=models) as daemon,
            Channel(daemon.endpoint, client_id="test") as channel,
        ):
            try:
                RemoteNetworks(channel).add(file, wanted, progress)
            except KeyboardInterrupt:
                assert [one.stat().st_size for one in parts(place)] == [2 * MB]
    assert pieces.offsets == [0, MB, 2 * MB, 3 * MB]
    assert not parts(place)


def test_a_damaged_or_too_long_upload_restarts_from_the_beginning(
    place: Path, cloud: CloudDaemon, remote: RemoteNetworks
) -> None:
    file = adder_network(place / "adder.onnx")
    wanted, here = manifest_of_file(file, "adder"), cloud.networks.repository
    here.folder.mkdir(exist_ok=True)
    here.path(wanted, "part").write_bytes(file.read_bytes() + b"more")
    with pytest.raises(Unavailable, match="arrived damaged; send it again"):
        remote.add(file, wanted, lambda _: None)
    assert remote.add(file, wanted, lambda _: None).done == "added"


def test_an_unreachable_cloud_is_reported_after_several_attempts(
    place: Path, remote: RemoteNetworks, pieces: Pieces
) -> None:
    file = adder_network(place / "adder.onnx")
    pieces.damage_at = [0] * 100
    with pytest.raises(Unavailable, match="does not arrive undamaged"):
        remote.add(file, manifest_of_file(file, "adder"), lambda _: None)


def test_a_cloud_that_never_answered_is_asked_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_intake, "BACK_OFF_S", (600.0,))
    file = adder_network(place / "adder.onnx")
    with (
        Channel("tcp://127.0.0.1:9", client_id="test") as channel,
        pytest.raises(Unavailable, match="no server answers"),
    ):
        RemoteNetworks(channel).add(file, manifest_of_file(file, "adder"), lambda _: None)


def test_networks_the_cloud_cannot_execute_are_refused_and_deleted(
    place: Path, remote: RemoteNetworks
) -> None:
    text = place / "text.onnx"
    text.write_text("no network")
    with pytest.raises(InvalidArgument, match="text cannot be loaded"):
        remote.add(text, manifest_of_file(text, "text"), lambda _: None)
    assert not parts(place)
    file = colour_network(place / "colours.onnx")
    wanted = replace(manifest_of_file(file, "colours"), labels=("one", "two"))
    with pytest.raises(InvalidArgument, match="has 3 classes, but there are 2 labels"):
        remote.add(file, wanted, lambda _: None)
    other = replace(wanted, labels=(), checksum="0" * 64)
    with pytest.raises(Unavailable, match="arrived damaged"):
        remote.add(file, other, lambda _: None)
    assert [path.suffix for path in (place / "models").iterdir()] == [".part"], "only the labels were wrong"


def test_an_uploaded_network_cannot_read_other_files_of_the_cloud(
    place: Path, remote: RemoteNetworks
) -> None:
    spy = split_network(place / "spy.onnx")
    (place / "models").mkdir()
    (place / "spy.onnx.data").rename(place / "models" / "spy.onnx.data")
    with pytest.raises(InvalidArgument, match="the weights of spy are in another file"):
        remote.add(spy, manifest_of_file(spy, "spy"), lambda _: None)
    assert not parts(place)


def test_an_upload_cannot_be_changed_while_it_is_measured(
    place: Path, cloud: CloudDaemon, remote: RemoteNetworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = adder_network(place / "adder.onnx")
    wanted, measure_and_add = manifest_of_file(file, "adder"), network_intake.measure_and_add
    longer, more = replace(wanted, size_bytes=wanted.size_bytes + 4), b"more"

    def add_while_more_is_sent(*given: Any, **how: Any) -> AddedNetwork:
        assert remote._put(longer, wanted.size_bytes, more) == wanted.size_bytes
        return measure_and_add(*given, **how)

    monkeypatch.setattr(network_intake, "measure_and_add", add_while_more_is_sent)
    assert remote.add(file, wanted, lambda _: None).done == "added"
    here = cloud.networks.repository
    assert here.path(here.get("adder")).read_bytes() == file.read_bytes()


def test_an_abandoned_upload_is_removed_by_name_or_at_the_start_after_a_day(
    place: Path, cloud: CloudDaemon, remote: RemoteNetworks
) -> None:
    wanted = manifest_of_file(adder_network(place / "adder.onnx"), "adder")
    assert remote._put(wanted, 0, b"some") == 4
    remote.remove("adder")
    assert not parts(place)
    with pytest.raises(NotFound):
        remote.remove("adder")
    for hours in (25, 23):
        other = replace(wanted, name=f"h{hours}")
        remote._put(other, 0, b"some")
        (part,) = (place / "models").glob(f"h{hours}-*.part")
        os.utime(part, (time.time() - hours * 3600,) * 2)
    CloudNetworks(ModelSettings(folder=place / "models"), 1.0, SYSTEM_CLOCK).stop(0)
    assert [one.name[:3] for one in parts(place)] == ["h23"]


def test_a_network_that_hangs_is_given_up_while_the_cloud_serves(place: Path) -> None:
    endless = endless_network(place / "endless.onnx", rounds=10**12)
    models = ModelSettings(folder=place / "models", load_limit_s=0.1)
    with (
        running_cloud(place / "cloud.db", models=models) as daemon,
        Channel(daemon.endpoint, client_id="test") as channel,
        pytest.raises(Unavailable, match="measuring endless exceeded the time limit"),
    ):
        RemoteNetworks(channel).add(endless, manifest_of_file(endless, "endless"), lambda _: None)
    assert not [*(place / "models").glob("*.json")]


def test_a_full_disk_is_reported_and_keeps_received_chunks(
    place: Path, cloud: CloudDaemon, remote: RemoteNetworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = colour_network(place / "large.onnx", weights_mb=3)
    wanted, real = manifest_of_file(file, "large"), Path.open
    with pytest.raises(Unavailable, match="disk room for"):
        remote.add(file, replace(wanted, size_bytes=10**15), lambda _: None)

    def full(path: Path, mode: str = "r", *rest: object, **more: object) -> object:
        if mode == "ab" and path.stat().st_size >= 2 * MB:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path, mode, *rest, **more)  # type: ignore[call-overload]

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(Unavailable, match="cannot store the file: No space left on device"):
            remote.add(file, wanted, lambda _: None)
    assert [one.stat().st_size for one in parts(place)] == [2 * MB]
    assert remote.add(file, wanted, lambda _: None).done == "added"


def test_missing_files_and_foreign_manifests_are_refused(remote: RemoteNetworks) -> None:
    wanted = Manifest("adder", 1, 10, "0" * 64)
    for text, says in (
        (wanted.to_json(), "the manifest is of 'adder', the call is about 'trees'"),
        ("{", "damaged"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            remote._stub.add_model(pb.AddModelRequest(manifest=text), timeout_s=LONG_S, catalogue="trees")
    missing = Manifest("trees", 1, 10, "0" * 64).to_json()
    with pytest.raises(NotFound, match="not arrived yet"):
        remote._stub.add_model(pb.AddModelRequest(manifest=missing), timeout_s=LONG_S, catalogue="trees")
