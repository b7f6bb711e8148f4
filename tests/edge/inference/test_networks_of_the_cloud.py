"""A network from the cloud to the application: real cloud, edge and SDK in this process."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from nearsight import DeadlineExceeded, InvalidArgument, NotFound, Recognizer, Unavailable
from nearsight.__main__ import main
from nearsight.cloud.daemon import CloudDaemon
from nearsight.common.inference.repository import manifest_of_file
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.model_cache.hindsight import Hindsight
from nearsight.device.inference import Inference
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.metrics import network_metrics
from support.cloud import running_cloud
from support.edge import EdgeClient, features_of, running_edge
from support.networks import (
    COLOURS,
    add_network,
    adder_network,
    colour_network,
    endless_network,
    jpeg_of,
    photo_of,
)
from support.pictures import picture_jpeg
from support.recognizers import PATIENT
from support.waiting import LONG_S, wait_until


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[CloudDaemon]:
    with running_cloud(tmp_path / "cloud.db", models=ModelSettings(folder=tmp_path / "models")) as daemon:
        add_network(daemon.networks.repository, "colours", colour_network(tmp_path / "colours.onnx"))
        add_network(daemon.networks.repository, "adder", adder_network(tmp_path / "adder.onnx"), ())
        yield daemon


@pytest.fixture
def edge(cloud: CloudDaemon, tmp_path: Path) -> Iterator[EdgeDaemon]:
    with running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge-models")) as daemon:
        yield daemon


def resident(edge: EdgeDaemon, name: str) -> bool:
    return edge.networks.memory.is_resident(name)


def test_a_network_names_photos_first_at_the_cloud_then_at_the_edge(edge: EdgeDaemon) -> None:
    with Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer:
        first = recognizer.recognize_blocking(photo_of("red"))
        assert (first.label, first.answered_by, first.grain) == ("red", "cloud", "network")
        wait_until(lambda: resident(edge, "colours"), what="the network at the edge")
        for colour in ("green", "blue"):
            for photo in (photo_of(colour), jpeg_of(colour)):
                answer = recognizer.recognize_blocking(photo)
                assert (answer.label, answer.answered_by, answer.grain) == (colour, "edge", "network")
                assert answer.confidence > 0.9
        unknown = recognizer.recognize_blocking(photo_of("grey"))
        assert (unknown.known, unknown.answered_by) == (False, "edge")


def test_tensors_go_through_a_network_at_both_tiers(edge: EdgeDaemon, cloud: CloudDaemon) -> None:
    tensor = np.arange(8, dtype=np.float32).reshape(2, 4)
    with Recognizer(edge.endpoint, cloud.endpoint, "adder", settings=PATIENT) as recognizer:
        answer = recognizer.infer(tensor)
        assert answer.answered_by == "cloud"
        np.testing.assert_array_equal(answer.output, tensor + 1)
        wait_until(lambda: resident(edge, "adder"), what="the network at the edge")
        answer = recognizer.infer({"x": tensor})
        assert (answer.answered_by, list(answer.outputs)) == ("edge", ["y"])
        np.testing.assert_array_equal(answer.output, tensor + 1)
        with pytest.raises(InvalidArgument, match=r"shape \(2, 3\), expected float32 \(any, 4\)"):
            recognizer.infer(tensor[:, :3])
        with pytest.raises(InvalidArgument, match=r"astype\('float32'\)"):
            recognizer.infer(tensor.astype(np.float64))


def test_an_edge_without_its_cloud_executes_networks_from_its_disk(
    edge: EdgeDaemon, cloud: CloudDaemon, tmp_path: Path
) -> None:
    with Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer:
        recognizer.recognize_blocking(photo_of("red"))
        wait_until(lambda: edge.networks.repository.has("colours"), what="the file")
        wait_until(lambda: resident(edge, "colours"), what="the network")
    here = edge.networks.repository.get("colours")
    assert here.measured is not None
    slow = replace(here.measured, load_ms=5000.0)  # than a cloud is expected to answer, if it were there
    edge.networks.repository.note_measured(here, slow)
    nobody = "tcp://127.0.0.1:9"
    with (
        running_edge(nobody, models=ModelSettings(folder=tmp_path / "edge-models")) as alone,
        Recognizer(alone.endpoint, None, "colours", settings=PATIENT) as recognizer,
    ):
        answer = recognizer.recognize_blocking(photo_of("blue"))
        assert (answer.label, answer.answered_by) == ("blue", "edge")


def test_a_hanging_execution_ends_with_its_request_and_others_are_served(
    edge: EdgeDaemon, cloud: CloudDaemon, tmp_path: Path
) -> None:
    add_network(cloud.networks.repository, "endless", endless_network(tmp_path / "endless.onnx"), ())
    quick, forever = np.ones(3, np.float32), np.full(3, 1e12, np.float32)
    with Recognizer(edge.endpoint, None, "endless", settings=PATIENT) as recognizer:
        wait_until(lambda: recognizer.infer(quick).answered_by == "edge", what="the network")
        for _ in range(3):
            with pytest.raises(DeadlineExceeded):
                recognizer.infer(forever, timeout_s=0.2)
        np.testing.assert_array_equal(recognizer.infer(quick).output, quick + 1)


def test_a_device_sends_photos_to_a_network_in_colour_and_without_features(edge: EdgeDaemon) -> None:
    large = photo_of("blue", 1200)
    with Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer:
        for _ in range(3):
            answer = recognizer.recognize_blocking(large)
            assert (answer.label, len(answer.attempts)) == ("blue", 1)


def test_features_without_a_photo_are_unknown_to_a_network(edge: EdgeDaemon) -> None:
    with EdgeClient(edge.endpoint) as device:
        features = features_of(picture_jpeg(1))
        device.catalogue = "colours"
        wait_until(lambda: edge.networks.knows("colours"), what="the network listed")
        answer = device.send(features).result(LONG_S).message
        assert (answer.HasField("object"), answer.grain, answer.answered_by) == (False, "network", "edge")


def test_a_network_that_does_not_fit_is_executed_by_the_cloud(cloud: CloudDaemon, tmp_path: Path) -> None:
    source = colour_network(tmp_path / "large.onnx", weights_mb=6)
    add_network(cloud.networks.repository, "large", source)
    settings = ModelSettings(folder=tmp_path / "edge-models", memory_mb=5)
    with (
        running_edge(cloud.endpoint, models=settings) as edge,
        Recognizer(edge.endpoint, None, "large", settings=PATIENT) as one,
    ):
        assert one.recognize_blocking(photo_of("red")).answered_by == "cloud"
        wait_until(lambda: edge.networks.memory.state.counts.refused > 0, what="the refusal")
        assert one.recognize_blocking(photo_of("red")).answered_by == "cloud"
        assert edge.networks.memory.state.resident == {}


def test_while_the_budget_shrinks_and_grows_every_request_is_answered(
    edge: EdgeDaemon, cloud: CloudDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor, stopped = np.ones((1, 4), np.float32), Event()
    names = [f"adder-{number}" for number in range(3)]
    for number, name in enumerate(names):
        source = adder_network(tmp_path / f"{name}.onnx", float(number))
        add_network(cloud.networks.repository, name, source, ())

    tiers: dict[str, set[str]] = {name: set() for name in names}

    def ask(name: str, sum_: float) -> None:
        with Recognizer(edge.endpoint, None, name, settings=PATIENT) as recognizer:
            while not stopped.is_set():
                answer = recognizer.infer(tensor)
                assert float(answer.output[0, 0]) == sum_
                tiers[name].add(answer.answered_by)

    def all_resident() -> bool:
        return all(resident(edge, name) and "edge" in tiers[name] for name in names)

    memory = edge.networks.memory
    monkeypatch.setattr(memory, "keep_fitting", lambda _background: None)  # it would end the shortage
    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask, name, 1.0 + number) for number, name in enumerate(names)]
        try:
            for _ in range(3):
                wait_until(all_resident, what="answers from the edge, and all networks in memory")
                evictions = memory.state.counts.evictions
                memory.fit(0)
                wait_until(lambda: memory.state.used_bytes == 0, what="an empty memory")
                assert memory.state.counts.evictions >= evictions + 3
                memory.fit(10**9)
        finally:
            stopped.set()
        for one in asking:
            one.result(LONG_S)
    assert list(tiers.values()) == [{"cloud", "edge"}] * 3


def test_edges_without_the_library_let_the_cloud_answer(
    cloud: CloudDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recognizer(None, cloud.endpoint, "colours", settings=PATIENT) as direct:
        assert direct.recognize_blocking(photo_of("red")).label == "red"
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with (
        running_edge(cloud.endpoint, models=ModelSettings(folder=tmp_path / "edge-models")) as edge,
        Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer,
    ):
        for _ in range(2):
            assert recognizer.recognize_blocking(photo_of("red")).answered_by == "cloud"
            wait_until(lambda: edge.networks.repository.has("colours"), what="the file")


def test_a_small_network_stands_in_while_the_large_one_is_loaded(cloud: CloudDaemon, tmp_path: Path) -> None:
    def add(name: str, weights_mb: float, accuracy: float, stands_in_for: str = "") -> None:
        source = colour_network(tmp_path / f"{name}.onnx", weights_mb=weights_mb, sharpness=20 * accuracy)
        stated = replace(manifest_of_file(source, name), labels=COLOURS, accuracy=accuracy)
        cloud.networks.repository.add(source, replace(stated, stands_in_for=stands_in_for))

    add("large", 2, 0.8)
    add("other", 2, 0.8)
    add("small", 0.01, 0.7, "large")
    settings = ModelSettings(
        folder=tmp_path / "edge-models", memory_mb=3, pinned=("small",), accuracy_loss=0.5
    )
    tensor = np.random.default_rng(1).random((1, 3, 8, 8), np.float32)
    with (
        running_edge(cloud.endpoint, models=settings) as edge,
        Recognizer(edge.endpoint, None, "large", settings=PATIENT) as large,
        Recognizer(edge.endpoint, None, "other", settings=PATIENT) as other,
    ):

        def use(network: Recognizer) -> Inference:
            """Ask until the edge answers; it loads no network while the other one is in use."""
            answers: list[Inference] = []

            def answered_here() -> bool:
                answers.append(network.infer(tensor, exact=True))
                return answers[-1].answered_by == "edge"

            wait_until(answered_here, what="an answer of the edge")
            return answers[-1]

        exact = use(large)
        wait_until(lambda: resident(edge, "small"), what="the small network")
        use(other)
        assert not resident(edge, "large")
        answer = large.infer(tensor)
        assert (answer.network, answer.answered_by, exact.network) == ("small", "edge", "")
        np.testing.assert_allclose(answer.output / 0.7, exact.output / 0.8, rtol=1e-5)
        use(large)
        use(other)
        assert not large.infer(tensor, exact=True).network
        use(large)
        use(other)
        wait_until(  # a busy edge lets the cloud answer
            lambda: large.recognize_blocking(photo_of("green")).metadata == {"network": "small"}, what="small"
        )
        assert "; others stood in for it in 2 of" in dict(edge.networks.explanations())["large"]
        assert edge.networks.counts()["stood in"] == 2


def test_an_unknown_network_is_not_found(edge: EdgeDaemon) -> None:
    with Recognizer(edge.endpoint, None, "none", settings=PATIENT) as recognizer, pytest.raises(NotFound):
        recognizer.infer(np.ones(3, np.float32))


def test_without_reachable_tiers_the_last_error_is_raised() -> None:
    with (
        Recognizer("tcp://127.0.0.1:9", "tcp://127.0.0.1:9", "any") as recognizer,
        pytest.raises((Unavailable, DeadlineExceeded)),
    ):
        recognizer.infer(np.ones(3, np.float32), timeout_s=0.3)


def test_explain_status_and_metrics_describe_networks(
    edge: EdgeDaemon, cloud: CloudDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    with Recognizer(edge.endpoint, None, "colours", settings=PATIENT) as recognizer:
        recognizer.recognize_blocking(photo_of("red"))
        wait_until(lambda: resident(edge, "colours"), what="the network")
        recognizer.recognize_blocking(photo_of("red"))
    assert main(["explain", edge.endpoint]) == 0
    told = capsys.readouterr().out
    assert "network colours: in memory" in told
    assert "network adder: its file is not downloaded; the cloud is assumed to take 100 ms" in told
    details = dict(edge.details())
    assert details["networks"] == "adder (not downloaded), colours"
    assert "1 here" in details["network requests"]
    assert "colours" in dict(cloud.details())["networks"]
    assert main(["models", "list", "--from", edge.endpoint]) == 0
    assert "colours" in capsys.readouterr().out
    assert main(["models", "log", edge.endpoint]) == 0
    assert capsys.readouterr().out == "nothing was evicted\n"
    series = {one.name: one.samples[0].value for one in network_metrics(edge.networks) if one.samples}
    assert (series["nearsight_models_resident"], series["nearsight_models_loads"]) == (1, 1)
    assert edge.networks.repository.get("colours").labels == COLOURS


def test_an_edge_reports_its_distance_from_the_optimum_in_hindsight(edge: EdgeDaemon) -> None:
    wait_until(edge.networks.facts, what="the networks of the cloud")
    assert "waiting for networks" not in dict(edge.networks.facts())
    edge.networks.hindsight = Hindsight(10, 30.0, 20.0, 5.0)
    told = dict(edge.networks.facts())["waiting for networks"]
    assert told.startswith("30.0 ms per request over the last 10")
    (waits,) = (one for one in network_metrics(edge.networks) if one.name.endswith("network_wait_seconds"))
    assert [one.value for one in waits.samples] == [0.03, 0.02, 0.005]
