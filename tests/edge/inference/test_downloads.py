"""Downloads of a network's file from the cloud to an edge: in chunks, resumed, and verified."""

import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xxhash

from nearsight import Recognizer, Unavailable
from nearsight.cloud.daemon import CloudDaemon
from nearsight.common.clock import SYSTEM_CLOCK, ManualClock
from nearsight.common.errors import CorruptStore, SetupError
from nearsight.common.inference import measurement_queue
from nearsight.common.inference.measurement import Measurement
from nearsight.common.inference.repository import ModelRepository, manifest_of_file
from nearsight.common.inference.service import ModelsService
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.rpc.service import CallContext
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.inference import downloads
from nearsight.protos import inference_pb2 as pb
from support.cloud import running_cloud
from support.edge import running_edge
from support.networks import COLOURS, add_network, adder_network, colour_network, photo_of, runtime_version
from support.recognizers import PATIENT
from support.waiting import LONG_S, wait_until

MB = 1 << 20


class Chunks:
    """Records the chunks that the cloud sends; fails or damages some of them first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offsets: list[int] = []
        self.fail = False
        self.fail_at: set[int] = set()
        self.damage_at: set[int] = set()
        real = ModelsService.get_model_chunk

        def get_model_chunk(
            service: ModelsService, request: pb.GetModelChunkRequest, context: CallContext
        ) -> pb.GetModelChunkResponse:
            self.offsets.append(request.offset)
            if self.fail:
                raise Unavailable("not now")
            if request.offset in self.fail_at:
                self.fail_at.remove(request.offset)
                raise Unavailable("not now")
            response = real(service, request, context)
            if request.offset in self.damage_at:
                self.damage_at.remove(request.offset)
                context.response_blobs[0] = bytes(len(context.response_blobs[0]))
            return response

        monkeypatch.setattr(ModelsService, "get_model_chunk", get_model_chunk)
        monkeypatch.setattr(downloads, "_BACK_OFF_S", (0.01, 0.02))


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> Chunks:
    return Chunks(monkeypatch)


@pytest.fixture
def cloud(tmp_path: Path, chunks: Chunks) -> Iterator[CloudDaemon]:
    with running_cloud(tmp_path / "cloud.db", models=ModelSettings(folder=tmp_path / "models")) as daemon:
        source = colour_network(tmp_path / "colours.onnx", weights_mb=3)
        manifest = add_network(daemon.networks.repository, "colours", source)
        measured = Measurement(3_000_000, 5.0, 1.0, 0.5, runtime_version())
        daemon.networks.repository.note_measured(manifest, measured)
        yield daemon


def ask_until_the_file_is_here(edge: EdgeDaemon) -> None:
    with Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer:
        answer = recognizer.recognize_blocking(photo_of("red"))
        assert (answer.label, answer.answered_by) == ("red", "cloud")
    wait_until(lambda: edge.networks.repository.has("colours"), what="the file")


def test_a_file_is_downloaded_once_in_chunks(cloud: CloudDaemon, chunks: Chunks, tmp_path: Path) -> None:
    with running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge")) as edge:
        ask_until_the_file_is_here(edge)
        assert chunks.offsets == [0, MB, 2 * MB, 3 * MB]
        manifest = edge.networks.repository.get("colours")
        assert manifest.labels == COLOURS
        ours, theirs = edge.networks.repository, cloud.networks.repository
        assert ours.checked_path(manifest).read_bytes() == theirs.checked_path(manifest).read_bytes()


def test_failed_or_damaged_chunks_are_requested_again(
    cloud: CloudDaemon, chunks: Chunks, tmp_path: Path
) -> None:
    chunks.fail_at, chunks.damage_at = {MB}, {2 * MB}
    with running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge")) as edge:
        ask_until_the_file_is_here(edge)
    assert chunks.offsets == [0, MB, MB, 2 * MB, 2 * MB, 3 * MB]


@pytest.mark.parametrize(
    ("damaged", "offsets"),
    [(False, [2 * MB + 5, 3 * MB + 5]), (True, [2 * MB + 5, 3 * MB + 5, 0, MB, 2 * MB, 3 * MB])],
)
def test_a_download_continues_after_a_restart_unless_its_beginning_is_damaged(
    cloud: CloudDaemon, chunks: Chunks, tmp_path: Path, damaged: bool, offsets: list[int]
) -> None:
    theirs = cloud.networks.repository
    manifest = theirs.get("colours")
    part = ModelRepository(tmp_path / "edge").path(manifest, "part")
    part.parent.mkdir()
    begun = theirs.checked_path(manifest).read_bytes()[: 2 * MB + 5]
    part.write_bytes(bytes(len(begun)) if damaged else begun)
    with running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge")) as edge:
        ask_until_the_file_is_here(edge)
    assert chunks.offsets == offsets


def _by_photo(recognizer: Recognizer) -> str:
    answer = recognizer.recognize_blocking(photo_of("green"))
    assert answer.label == "green"
    return answer.answered_by


def _by_tensor(recognizer: Recognizer) -> str:
    answer = recognizer.infer(np.ones((1, 3, 8, 8), np.float32))
    assert answer.output.shape == (1, 3)
    return answer.answered_by


@pytest.mark.parametrize(("damage", "ask"), [("other bytes", _by_photo), ("no file", _by_tensor)])
def test_a_damaged_file_is_downloaded_again_while_requests_are_answered(
    cloud: CloudDaemon, tmp_path: Path, damage: str, ask: Callable[[Recognizer], str]
) -> None:
    settings = ModelSettings(folder=tmp_path / "edge")
    with running_edge(cloud.endpoint, models=settings) as edge:
        ask_until_the_file_is_here(edge)
    path = ModelRepository(tmp_path / "edge").path(cloud.networks.repository.get("colours"))
    if damage == "no file":
        path.unlink()
    else:
        path.write_bytes(bytes(path.stat().st_size))
    with (
        running_edge(cloud.endpoint, models=settings) as edge,
        Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer,
    ):
        wait_until(lambda: ask(recognizer) == "edge", what="an answer of the edge")
        assert (tmp_path / "edge" / "quarantine" / "colours.json").exists()


def test_on_a_full_disk_the_cloud_answers_and_the_status_explains_it(
    cloud: CloudDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, full = Path.open, [True]

    def opened(path: Path, mode: str = "r", *rest: object, **more: object) -> object:
        if full[0] and path.suffix == ".part" and mode == "r+b":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path, mode, *rest, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", opened)
    with (
        running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge")) as edge,
        Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer,
    ):
        for _ in range(3):
            assert recognizer.recognize_blocking(photo_of("blue")).answered_by == "cloud"
        wait_until(lambda: "No space left" in str(edge.details()), what="the reason")
        full[0] = False
        wait_until(lambda: edge.networks.repository.has("colours"), what="the file")


def test_a_network_replaced_or_removed_at_the_cloud_is_updated_at_the_edge(
    cloud: CloudDaemon, tmp_path: Path
) -> None:
    repository = cloud.networks.repository
    with (
        running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge"), poll_s=0.05) as edge,
        Recognizer(edge.endpoint, None, "adder", settings=PATIENT) as recognizer,
    ):
        add_network(repository, "adder", adder_network(tmp_path / "one.onnx", 1.0), ())
        ones = np.ones((1, 4), np.float32)

        def answers(value: float, version: int) -> bool:
            answer = recognizer.infer(ones)
            return (float(answer.output[0, 0]), answer.version, answer.answered_by) == (
                value,
                version,
                "edge",
            )

        wait_until(lambda: answers(2.0, 1), what="the first network")
        add_network(repository, "adder", adder_network(tmp_path / "two.onnx", 2.0), ())
        wait_until(lambda: answers(3.0, 2), what="the second network")
        repository.remove("adder")
        wait_until(lambda: not edge.networks.repository.has("adder"), what="the network gone")


def test_a_network_that_cannot_be_updated_does_not_keep_others_from_their_removal(
    cloud: CloudDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ModelRepository(tmp_path / "edge"), cloud.networks.repository
    add_network(ours, "colours", theirs.checked_path(theirs.get("colours")), ["an", "earlier", "label"])
    add_network(ours, "removed", adder_network(tmp_path / "adder.onnx"))

    def full(*_: object) -> None:
        raise SetupError("No space left on device")

    monkeypatch.setattr(ModelRepository, "relabel", full)
    with running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge")) as edge:
        wait_until(lambda: not edge.networks.repository.has("removed"), what="the removal")


def test_partial_files_that_the_cloud_no_longer_offers_are_removed(
    cloud: CloudDaemon, tmp_path: Path
) -> None:
    ours = ModelRepository(tmp_path / "edge")
    ours.folder.mkdir()
    removed = manifest_of_file(adder_network(tmp_path / "adder.onnx"), "adder")
    parts = [ours.path(one, "part") for one in (removed, cloud.networks.repository.get("colours"))]
    for part in parts:
        part.touch()
    with running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge")):
        wait_until(lambda: not parts[0].exists(), what="the removal")
    assert parts[1].exists()


def test_new_labels_of_the_same_version_are_updated_at_the_edge(cloud: CloudDaemon, tmp_path: Path) -> None:
    theirs = cloud.networks.repository
    with running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge"), poll_s=0.05) as edge:
        ask_until_the_file_is_here(edge)
        theirs.relabel(replace(theirs.get("colours"), labels=("rouge", "vert", "bleu")))
        with Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer:
            wait_until(
                lambda: recognizer.recognize_blocking(photo_of("red")).label == "rouge", what="the new label"
            )


def test_without_the_cloud_the_version_of_the_disk_answers_until_the_new_one_is_downloaded(
    cloud: CloudDaemon, chunks: Chunks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, ones = cloud.networks.repository, np.ones((1, 4), np.float32)
    add_network(repository, "adder", adder_network(tmp_path / "one.onnx", 1.0), ())
    with (
        running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge"), poll_s=0.05) as edge,
        Recognizer(edge.endpoint, None, "adder", settings=PATIENT) as recognizer,
    ):
        wait_until(lambda: recognizer.infer(ones).answered_by == "edge", what="the first version")
        chunks.fail = True
        add_network(repository, "adder", adder_network(tmp_path / "two.onnx", 2.0), ())
        wait_until(lambda: recognizer.infer(ones).version == 2, what="the second version at the cloud")
        wait_until(lambda: bool(edge.networks._downloads.progress), what="the download")
        assert recognizer.infer(ones).answered_by == "cloud"
        monkeypatch.setattr(edge.networks, "_cloud_lost", lambda: True)
        answer = recognizer.infer(ones)
        assert (answer.answered_by, answer.version, answer.output[0, 0]) == ("edge", 1, 2.0)


def test_a_file_that_the_edge_cannot_use_is_not_downloaded_for_each_request(
    cloud: CloudDaemon, chunks: Chunks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, name: str, **limits: object) -> None:
        raise CorruptStore(f"{name} cannot be loaded: unknown operator")

    monkeypatch.setattr(measurement_queue, "measure", refuse)
    with (
        running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge")) as edge,
        Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer,
    ):

        def ask() -> None:
            handled = threading.Event()
            assert recognizer.recognize_blocking(photo_of("red")).answered_by == "cloud"
            edge.networks._background.submit(handled.set)
            assert handled.wait(LONG_S)

        ask()
        wait_until(lambda: "unknown operator" in str(edge.details()), what="the refusal")
        for _ in range(3):
            ask()
        assert (edge.networks._downloads.progress, chunks.offsets.count(0)) == ((), 1)
        monkeypatch.setattr(edge.networks._downloads, "clock", ManualClock(SYSTEM_CLOCK.monotonic() + 60))
        ask()
        wait_until(lambda: chunks.offsets.count(0) == 2, what="another try")


def test_pauses_double_up_to_a_limit() -> None:
    pauses_s = [downloads._pause_s((30.0, 3600.0), before) for before in (0, 1, 6, 7, 5000)]
    assert pauses_s == [30.0, 60.0, 1920.0, 3600.0, 3600.0]


def test_chunks_belong_to_the_file_with_the_requested_checksum(cloud: CloudDaemon) -> None:
    networks = cloud.networks
    service = ModelsService(networks.repository, networks.memory, lambda _: True, None)  # type: ignore[arg-type]
    manifest = networks.repository.get("colours")
    request = pb.GetModelChunkRequest(checksum=bytes.fromhex(manifest.checksum), offset=10, length=20)
    context = CallContext(None, catalogue="colours")  # type: ignore[arg-type]
    response = service.get_model_chunk(request, context)
    piece = networks.repository.checked_path(manifest).read_bytes()[10:30]
    assert (context.response_blobs, response.digest) == ([piece], xxhash.xxh3_64_intdigest(piece))
    for changes in ({"checksum": b"x"}, {"length": 0}, {"length": 2**31}, {"offset": manifest.size_bytes}):
        wrong = pb.GetModelChunkRequest(checksum=request.checksum, offset=10, length=20)
        for name, value in changes.items():
            setattr(wrong, name, value)
        with pytest.raises(Exception, match=r"replaced|invalid chunk length|offset"):
            service.get_model_chunk(wrong, context)
