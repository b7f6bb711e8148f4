"""The SDK against real servers: which tier answers under every fault."""

import socket
import threading
from pathlib import Path

import cv2
import numpy as np
import pytest

from nearsight import (
    ConfigurationError,
    InternalError,
    InvalidArgument,
    NotFound,
    Overloaded,
    PeerError,
    PrefetchSettings,
    Recognizer,
    RecognizerSettings,
    StatusCode,
    Unauthenticated,
    Unavailable,
)
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.common.request.next_tiers import BreakerSettings, BreakerState
from support.child_server import child_server
from support.pictures import broken_images, picture
from support.recognition_server import EXHIBIT, always, failing, never, response
from support.recognizers import NOBODY, PHOTO, QUICK, Scene
from support.waiting import LONG_S, wait_until

RESTING = RecognizerSettings(
    timeout_s=LONG_S, breaker=BreakerSettings(cooldown_s=600.0, longest_cooldown_s=600.0)
)
"""A tier that failed is not asked again during the test."""


def test_the_edge_answers_and_the_recognition_is_complete(scene: Scene) -> None:
    service, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge)
    recognition = recognizer.recognize_blocking(PHOTO)
    assert recognition.object == EXHIBIT
    assert (recognition.known, recognition.object_id, recognition.label) == (True, "0042", "Night")
    assert (recognition.answered_by, recognition.metadata) == ("edge", {"artist": "R."})
    assert [hop.tier for hop in recognition.hops] == ["edge", "device"]
    assert 0 < recognition.attempts[0].elapsed_ms <= recognition.latency_ms
    assert recognition.sent_bytes > len(PHOTO)
    assert recognition.received_bytes > 0
    (context,) = service.contexts
    assert context.catalogue == "museum"
    assert context.client_id == recognizer.device_id
    assert context.trace_id == recognition.trace_id
    assert bytes(context.blobs[0]) == PHOTO


def test_unknown_is_an_answer(scene: Scene) -> None:
    _, edge = scene.tier("edge", lambda: response("cloud", None))
    recognition = scene.recognizer(edge).recognize_blocking(PHOTO)
    assert not recognition.known
    assert (recognition.answered_by, recognition.object_id, recognition.corners) == ("cloud", None, None)
    assert (recognition.label, recognition.confidence, recognition.metadata) == ("", 0.0, {})


def test_paths_arrays_and_features_are_understood_and_corners_fit_the_given_image(
    scene: Scene, tmp_path: Path
) -> None:
    _, edge = scene.tier("edge", always("edge"))
    sends_images = QUICK.model_copy(update={"prefetch": PrefetchSettings(enabled=False)})
    recognizer = scene.recognizer(edge, settings=sends_images)
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    features = extract_features(load_image(PHOTO), 200)
    for image in (tmp_path / "photo.jpg", str(tmp_path / "photo.jpg"), picture(1), features):
        assert recognizer.recognize_blocking(image).corners == EXHIBIT.corners
    large = cv2.resize(picture(1), (1280, 1280))
    corners = recognizer.recognize_blocking(large).corners
    assert corners is not None
    assert np.allclose(corners, np.array(EXHIBIT.corners) * 2)


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("no cloud"),
        Overloaded("busy"),
        NotFound("no museum"),
        Unauthenticated("key"),
        ValueError("bug"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_cloud_answers_when_the_edge_fails(scene: Scene, error: Exception) -> None:
    _, edge = scene.tier("edge", failing(error))
    _, cloud = scene.tier("cloud", always("cloud"))
    recognition = scene.recognizer(edge, cloud).recognize_blocking(PHOTO)
    assert recognition.answered_by == "cloud"
    assert [attempt.tier for attempt in recognition.attempts] == ["edge", "cloud"]
    assert recognition.attempts[1].outcome is StatusCode.OK


def test_a_silent_edge_leaves_enough_time_for_the_cloud(scene: Scene) -> None:
    _, edge = scene.tier("edge", never())
    _, cloud = scene.tier("cloud", always("cloud"))
    settings = RecognizerSettings(timeout_s=LONG_S, tier_share=0.01)
    recognition = scene.recognizer(edge, cloud, settings).recognize_blocking(PHOTO)
    assert recognition.answered_by == "cloud"
    assert recognition.attempts[0].outcome is StatusCode.DEADLINE_EXCEEDED
    assert recognition.attempts[0].elapsed_ms > 900


@pytest.mark.parametrize("exists", [False, True])
def test_an_edge_that_does_not_exist_or_is_overloaded_is_skipped_after_a_few_failures(
    scene: Scene, exists: bool
) -> None:
    edge = scene.tier("edge", failing(Overloaded("busy")))[1] if exists else NOBODY
    _, cloud = scene.tier("cloud", always("cloud"))
    recognizer = scene.recognizer(edge, cloud, RESTING)
    for _ in range(3):
        assert recognizer.recognize_blocking(PHOTO).answered_by == "cloud"
    assert recognizer.breaker_states()["edge"] is BreakerState.COOLING
    assert [a.tier for a in recognizer.recognize_blocking(PHOTO).attempts] == ["cloud"]


def test_with_all_tiers_unreachable_the_error_is_typed_and_has_advice(scene: Scene) -> None:
    recognizer = scene.recognizer(NOBODY, "tcp://127.0.0.1:19")
    recognizer.recognize(PHOTO, scene.callbacks)
    (error,) = scene.callbacks.wait()
    assert isinstance(error, PeerError)
    assert error.advice
    assert "edge" in error.message


def test_if_the_edge_is_killed_during_requests_the_cloud_answers(scene: Scene) -> None:
    _, cloud = scene.tier("cloud", always("cloud"))
    with child_server("recognition", "edge", "silent") as edge:
        recognizer = scene.recognizer(edge.endpoint, cloud)
        for _ in range(5):
            recognizer.recognize(PHOTO, scene.callbacks)
        assert edge.line() == "asked"
        edge.kill()
        outcomes = scene.callbacks.wait(5)
    assert [getattr(outcome, "answered_by", outcome) for outcome in outcomes] == ["cloud"] * 5


def test_requests_go_to_a_restarted_edge_again(scene: Scene) -> None:
    _, cloud = scene.tier("cloud", always("cloud"))
    with child_server("recognition", "edge", "answer") as edge:
        endpoint = edge.endpoint
        recognizer = scene.recognizer(endpoint, cloud)
        assert recognizer.recognize_blocking(PHOTO).answered_by == "edge"
        edge.kill()
        answers = {recognizer.recognize_blocking(PHOTO).answered_by for _ in range(4)}
        assert answers == {"cloud"}
    scene.tier("edge", always("edge"), endpoint)
    wait_until(
        lambda: recognizer.recognize_blocking(PHOTO).answered_by == "edge", what="an answer of the edge"
    )
    assert recognizer.breaker_states()["edge"] is BreakerState.CLOSED


def test_an_invalid_image_is_an_outcome_without_requests(scene: Scene) -> None:
    service, edge = scene.tier("edge", always("edge"))
    scene.recognizer(edge).recognize(broken_images()["truncated"], scene.callbacks)
    assert isinstance(scene.callbacks.wait()[0], InvalidArgument)
    assert not service.contexts


@pytest.mark.parametrize("arguments", [{"callback": None}, {"image": None}, {"timeout_s": "soon"}])
def test_programming_errors_are_raised_immediately(scene: Scene, arguments: dict[str, object]) -> None:
    recognizer = scene.recognizer(NOBODY)
    with pytest.raises(TypeError):
        recognizer.recognize(**({"image": PHOTO, "callback": scene.callbacks} | arguments))
    assert recognizer.pending == 0


@pytest.mark.parametrize("timeout_s", [0.0, float("inf"), 86_401.0])
def test_a_timeout_out_of_range_is_refused_when_the_settings_are_created(timeout_s: float) -> None:
    with pytest.raises(ConfigurationError, match="timeout_s"):
        RecognizerSettings(timeout_s=timeout_s)


def test_a_recognizer_without_any_tier_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="edge or a cloud"):
        Recognizer(None, "", "museum")


def test_a_broken_answer_of_the_edge_is_not_passed_on(scene: Scene) -> None:
    def broken() -> object:
        message = response("edge")
        del message.object.corners[2:]
        return message

    _, edge = scene.tier("edge", broken)
    _, cloud = scene.tier("cloud", always("cloud"))
    assert scene.recognizer(edge, cloud).recognize_blocking(PHOTO).answered_by == "cloud"
    with pytest.raises(InternalError, match="invalid answer"):
        scene.recognizer(edge).recognize_blocking(PHOTO)


# Which tiers there are


def here(monkeypatch: pytest.MonkeyPatch, edge: str, cloud: str) -> None:
    """Replace the endpoints of this machine's daemons, which may be in use."""
    monkeypatch.setattr("nearsight.device.recognizer.DEFAULT_ENDPOINTS", {"edge": edge, "cloud": cloud})


def test_omitted_tiers_are_those_of_this_machine(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    _, cloud = scene.tier("cloud", always("cloud"))
    here(monkeypatch, NOBODY, cloud)
    with Recognizer(catalogue="museum", settings=QUICK) as recognizer:
        assert recognizer.endpoints == {"edge": NOBODY, "cloud": cloud}
        assert recognizer.recognize_blocking(PHOTO).answered_by == "cloud"
    with Recognizer(edge=None, catalogue="museum", settings=QUICK) as recognizer:
        assert recognizer.endpoints == {"cloud": cloud}


def test_with_one_address_no_other_tier_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, NOBODY, NOBODY)
    with Recognizer("tcp://127.0.0.1:1", catalogue="museum", settings=QUICK) as recognizer:
        assert recognizer.endpoints == {"edge": "tcp://127.0.0.1:1"}


def test_without_daemons_on_this_machine_the_error_names_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here(monkeypatch, NOBODY, NOBODY)
    with (
        Recognizer(catalogue="museum", settings=QUICK) as recognizer,
        pytest.raises(
            Unavailable, match=r"no server answers.*; start `nearsight cloud`.*LocalRecognizer"
        ) as raised,
    ):
        recognizer.recognize_blocking(PHOTO)
    assert "\n" not in str(raised.value)


def test_the_advice_of_a_running_daemon_is_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    _, cloud = scene.tier("cloud", failing(Unavailable("still loading", advice="try again in a moment")))
    here(monkeypatch, NOBODY, cloud)
    with (
        Recognizer(catalogue="museum", settings=QUICK) as recognizer,
        pytest.raises(Unavailable, match=r"; try again in a moment$"),
    ):
        recognizer.recognize_blocking(PHOTO)


def test_a_recognizer_needs_a_catalogue() -> None:
    with pytest.raises(TypeError, match="catalogue='museum'"):
        Recognizer(catalogue=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="catalogue='museum'"):
        Recognizer("tcp://127.0.0.1:1")


def test_an_unresolvable_name_is_an_early_error_and_resolved_again_later(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, edge = scene.tier("edge", always("edge"))
    known, resolve = threading.Event(), socket.getaddrinfo

    def look_up(host: str, *others: object, **named: object) -> object:
        if host != "edge.museum":
            return resolve(host, *others, **named)
        if not known.is_set():
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve("127.0.0.1", *others, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    settings = QUICK.model_copy(update={"timeout_s": 600.0})
    recognizer = scene.recognizer(f"tcp://edge.museum:{edge.rpartition(':')[2]}", settings=settings)
    with pytest.raises(Unavailable, match=r"the name edge\.museum does not resolve \(Name .*\); is"):
        recognizer.recognize_blocking(PHOTO)
    known.set()
    assert recognizer.recognize_blocking(PHOTO).answered_by == "edge"


@pytest.mark.parametrize("position", [0, 1, 2])
def test_of_several_addresses_of_a_name_the_one_that_answers_is_used(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    resolve = socket.getaddrinfo
    addresses = ["127.0.0.2", "127.0.0.3"]  # nobody listens at these
    addresses.insert(position, "127.0.0.1")

    def look_up(host: str, *rest: object) -> object:
        if host != "edge.museum":
            return resolve(host, *rest)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    _, edge = scene.tier("edge", always("edge"))
    recognizer = scene.recognizer(edge.replace("127.0.0.1", "edge.museum"))
    assert recognizer.recognize_blocking(PHOTO).answered_by == "edge"
