"""Streams of `nearsight.js` in Chromium: which frames are sent, and when it reconnects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.system, pytest.mark.needs("chromium")]
pytest.importorskip("playwright")
from playwright.sync_api import Page  # noqa: E402

from support.browsers import UNKNOWN, Connection, ScriptedGateway, answer, failure, until  # noqa: E402

INTERVAL_MS = 200
"""Default interval of frames."""
FILM = """async () => {
    const canvas = document.createElement("canvas");
    const context = canvas.getContext("2d");
    globalThis.video = document.createElement("video");
    Object.assign(video, {muted: true, srcObject: canvas.captureStream(0)});
    globalThis.show = async (colour, width = 1280) => {
        Object.assign(canvas, {width, height: 960});
        context.fillStyle = colour;
        context.fillRect(0, 0, width, 960);
        const shown = new Promise((done) => video.requestVideoFrameCallback(done));
        video.srcObject.getVideoTracks()[0].requestFrame();
        await shown;
    };
    globalThis.events = [];
    globalThis.heard = ({state, answer, ageMs, error}) =>
        events.push({state, corners: answer?.corners, ageMs, error: told(error)});
    globalThis.begin = ({unchangedEveryMs = 0, ...more}) => {
        globalThis.stream = recognizer(more).stream(video, heard, {unchangedEveryMs});
    };
    video.play();
    await show("red");
}"""


class Film:
    """A video on a page with a manual clock, and the stream of its frames."""

    def __init__(self, page: Page, gateway: ScriptedGateway) -> None:
        self.page, self.gateway = page, gateway
        page.evaluate(FILM)
        page.clock.install()
        page.clock.pause_at(page.evaluate("Date.now()") + 1000)

    def begin(self, **options: Any) -> Connection:
        """Begin a stream whose gateway is ready."""
        self.page.evaluate("begin", options)
        connection = self.connection(1)
        connection.ready()
        self.wait_for("looking")
        return connection

    def connection(self, number: int) -> Connection:
        """The connection with this number on the page, from 1."""
        connections = self.gateway.connections
        until(self.page, lambda: len(connections) >= number, f"connection {number}")
        assert len(connections) == number
        return connections[-1]

    def pass_time(self, duration_ms: float) -> None:
        self.page.clock.run_for(duration_ms)

    def next_frame(self, connection: Connection) -> tuple[int, np.ndarray]:
        count = len(connection.frames)
        self.pass_time(INTERVAL_MS)
        until(self.page, lambda: len(connection.frames) > count, "a frame")
        assert len(connection.frames) == count + 1
        return connection.frames[-1]

    def events(self) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = self.page.evaluate("events")
        return events

    def wait_for(self, *states: str) -> dict[str, Any]:
        """Wait until the last reported states are these; returns the last event."""
        self.page.wait_for_function(
            "states => events.slice(-states.length).map(({state}) => state).join() === states.join()",
            arg=states,
        )
        return self.events()[-1]


@pytest.fixture
def film(page: Page, gateway: ScriptedGateway) -> Film:
    return Film(page, gateway)


def assert_blue(image: np.ndarray) -> None:
    np.testing.assert_allclose(image.mean(axis=(0, 1)), (255, 0, 0), atol=3)


def test_frames_are_scaled_and_corners_are_in_pixels_of_the_video(film: Film) -> None:
    connection = film.begin()
    number, image = film.next_frame(connection)
    assert image.shape == (480, 640, 3)
    film.pass_time(30)
    connection.answers(number, answer(corners=[[0, 0], [640, 0], [640, 480], [0, 480]]))
    event = film.wait_for("connecting", "looking", "known")
    assert event["corners"] == [[0, 0], [1280, 0], [1280, 960], [0, 960]]
    assert 30 <= event["ageMs"] <= 30 + INTERVAL_MS


def test_at_most_as_many_frames_are_in_flight_as_there_are_credits(film: Film) -> None:
    connection = film.begin()
    film.next_frame(connection), film.next_frame(connection)
    film.pass_time(10 * INTERVAL_MS)
    film.page.evaluate("show('blue')")
    connection.answers(0, UNKNOWN)
    film.wait_for("unknown")
    number, image = film.next_frame(connection)
    assert number == 2
    assert_blue(image)  # what is seen now, not what was due then


def test_only_one_frame_is_encoded_at_a_time(film: Film) -> None:
    connection = film.begin()
    film.pass_time(10 * INTERVAL_MS)  # at once: the encoding does not end meanwhile
    until(film.page, lambda: len(connection.frames) > 0, "a frame")
    film.page.evaluate("show('blue')")
    number, image = film.next_frame(connection)
    assert number == 1
    assert_blue(image)


def test_answers_older_than_a_reported_one_are_dropped(film: Film) -> None:
    connection = film.begin()
    film.next_frame(connection), film.next_frame(connection)
    connection.answers(1, answer())
    connection.answers(0, UNKNOWN)
    film.next_frame(connection)
    connection.answers(2, answer())
    film.wait_for("looking", "known", "known")


def test_corners_are_dropped_after_the_video_rotated(film: Film) -> None:
    connection = film.begin()
    film.next_frame(connection)
    film.page.evaluate("show('red', 720)")
    connection.answers(0, answer())
    film.next_frame(connection)
    connection.answers(1, answer(corners=[[0, 0], [480, 0], [480, 640], [0, 640]]))
    event = film.wait_for("looking", "known")
    assert event["corners"] == [[0, 0], [720, 0], [720, 960], [0, 960]]


def test_a_frame_that_was_superseded_gives_its_credit_back_and_is_no_event(film: Film) -> None:
    connection = film.begin()
    film.next_frame(connection), film.next_frame(connection)
    connection.route.send('{"type": "superseded", "frame": 0}')
    film.next_frame(connection)
    connection.answers(2, answer())
    film.wait_for("connecting", "looking", "known")


def test_a_static_picture_is_sent_rarely_and_its_answer_repeated(film: Film) -> None:
    connection = film.begin(unchangedEveryMs=2000)
    film.next_frame(connection)
    connection.answers(0, answer())
    film.wait_for("known")
    film.pass_time(2000 - INTERVAL_MS)
    told = [event for event in film.events() if event["state"] == "known"]
    assert len(told) == 2000 / INTERVAL_MS
    assert told[-1]["corners"] == told[0]["corners"] and told[-1]["ageMs"] >= 2000 - 2 * INTERVAL_MS
    number, _ = film.next_frame(connection)
    connection.answers(number, answer())
    film.page.evaluate("events.length = 0")
    film.page.evaluate("show('blue')")
    _, image = film.next_frame(connection)
    assert_blue(image)


def test_unknown_is_reported_after_three_answers(film: Film) -> None:
    connection = film.begin(unchangedEveryMs=2000)
    for number in range(3):
        assert film.next_frame(connection)[0] == number
        connection.answers(number, UNKNOWN)
        until(film.page, lambda: len(film.events()) == number + 3, "the answer")  # noqa: B023
    film.pass_time(5 * INTERVAL_MS)
    film.page.evaluate("show('blue')")
    number, image = film.next_frame(connection)
    assert number == 3
    assert_blue(image)


def test_failed_frames_pause_the_stream_for_growing_times(film: Film) -> None:
    connection = film.begin()
    for pause_ms in (200, 400, 800, 1600, 1600):
        number, _ = film.next_frame(connection)
        connection.answers(number, failure("UNAVAILABLE", "the edge is away"))
        event = film.wait_for("failing")
        assert event["error"] == {
            "name": "NearsightError",
            "code": "UNAVAILABLE",
            "message": "the edge is away",
            "advice": "wait",
        }
        film.pass_time(pause_ms - INTERVAL_MS)
        assert len(connection.frames) == number + 1
        film.page.evaluate("events.length = 0")
    number, _ = film.next_frame(connection)
    connection.answers(number, answer())
    film.wait_for("known")


def test_retry_after_of_the_gateway_is_respected(film: Film) -> None:
    connection = film.begin()
    film.next_frame(connection)
    connection.answers(0, {**failure("OVERLOADED"), "retry_after_s": 5})
    film.wait_for("failing")
    film.pass_time(5000 - INTERVAL_MS)
    film.page.evaluate("show('blue')")
    number, image = film.next_frame(connection)
    assert number == 1
    assert_blue(image)  # not one of before


def test_a_frame_of_more_bytes_than_the_gateway_takes_is_not_sent(film: Film) -> None:
    film.page.evaluate("begin({})")
    connection = film.connection(1)
    connection.ready(max_bytes=100)
    film.wait_for("looking")
    film.pass_time(INTERVAL_MS)
    assert film.wait_for("failing")["error"]["code"] == "INVALID_ARGUMENT"
    assert connection.frames == []


def test_the_stream_reconnects_with_growing_delays_until_an_answer(film: Film) -> None:
    connection = film.begin()
    for number, wait_ms in enumerate((500, 1000, 2000, 4000, 8000, 8000), start=1):
        connection.route.close(code=1001)
        assert film.wait_for("reconnecting")["error"]["code"] == "UNAVAILABLE"
        film.pass_time(wait_ms - 10)
        assert len(film.gateway.connections) == number
        film.pass_time(10)
        connection = film.connection(number + 1)
        connection.ready()
        film.wait_for("looking")
    number, _ = film.next_frame(connection)
    connection.answers(number, answer())
    film.wait_for("known")
    connection.route.close(code=1001)
    film.wait_for("reconnecting")
    film.pass_time(500)
    film.connection(8)


@pytest.mark.parametrize("silent", ["before it is ready", "about a frame"])
def test_a_silent_gateway_is_disconnected_after_the_timeout(film: Film, silent: str) -> None:
    if silent == "about a frame":
        film.next_frame(film.begin(timeoutMs=3000))
    else:
        film.page.evaluate("begin({timeoutMs: 3000})")
        film.connection(1)
    film.pass_time(3000 + INTERVAL_MS)
    assert film.wait_for("reconnecting")["error"]["code"] == "DEADLINE_EXCEEDED"
    until(film.page, lambda: film.gateway.connections[0].closed, "the end of the first connection")
    film.pass_time(500)
    film.connection(2).ready()
    film.wait_for("looking")


def test_a_refused_token_ends_the_stream(film: Film) -> None:
    connection = film.begin(token="abc")
    connection.route.close(code=1008, reason="the token was revoked")
    event = film.wait_for("looking", "refused")
    assert (event["error"]["code"], event["error"]["message"]) == ("UNAUTHENTICATED", "the token was revoked")
    film.pass_time(60_000)
    assert len(film.gateway.connections) == 1


def test_a_refusal_while_the_catalogue_is_looked_up_ends_the_stream(film: Film) -> None:
    film.gateway.replies = [(401, failure("UNAUTHENTICATED"))]
    film.page.evaluate("begin({catalogue: ''})")
    film.wait_for("connecting", "refused")
    film.pass_time(60_000)
    assert film.gateway.connections == [] and len(film.gateway.requests) == 1


def test_a_camera_that_is_unplugged_ends_the_stream(film: Film) -> None:
    connection = film.begin()
    film.page.evaluate("video.srcObject.getVideoTracks()[0].stop()")
    film.pass_time(INTERVAL_MS)
    film.wait_for("looking", "ended")
    until(film.page, lambda: connection.closed, "the end of the connection")


def test_a_closed_stream_is_silent_and_leaves_no_connection(film: Film) -> None:
    connection = film.begin()
    film.page.evaluate("stream.close()")
    until(film.page, lambda: connection.closed, "the end of the connection")
    film.page.evaluate("dispatchEvent(new Event('offline')), dispatchEvent(new Event('online'))")
    film.pass_time(60_000)
    assert [event["state"] for event in film.events()] == ["connecting", "looking"]
    assert len(film.gateway.connections) == 1 and connection.frames == []


def test_a_stream_that_is_closed_while_the_catalogue_is_looked_up_leaves_no_connection(film: Film) -> None:
    film.gateway.replies = [None]
    film.page.evaluate("begin({catalogue: ''})")
    until(film.page, lambda: len(film.gateway.requests) == 1, "the question")
    film.page.evaluate("stream.close()")
    film.gateway.requests[0].fulfill(json={"catalogues": [{"name": "museum"}]})
    connection = film.connection(1)
    until(film.page, lambda: connection.closed, "the end of the connection")
    assert [event["state"] for event in film.events()] == ["connecting"]


def test_a_stream_that_is_closed_while_it_waits_does_not_connect_again(film: Film) -> None:
    film.begin().route.close(code=1001)
    film.wait_for("reconnecting")
    film.page.evaluate("stream.close()")
    film.pass_time(60_000)
    assert len(film.gateway.connections) == 1


def test_offline_is_reported_and_online_reconnects_without_a_delay(film: Film) -> None:
    film.begin()
    film.page.context.set_offline(True)
    film.wait_for("looking", "offline")
    film.page.context.set_offline(False)
    film.connection(2).ready()
    film.wait_for("offline", "looking")


def test_an_exception_in_the_callback_is_reported_and_the_stream_continues(film: Film) -> None:
    errors: list[str] = []
    film.page.on("pageerror", lambda error: errors.append(str(error)))
    film.page.evaluate(
        "() => { events.push = (event) => { events[events.length] = event; throw Error('mine'); }; }"
    )
    connection = film.begin()
    number, _ = film.next_frame(connection)
    connection.answers(number, answer())
    film.wait_for("connecting", "looking", "known")
    assert len(errors) == 3 and all("mine" in error for error in errors)


def test_a_page_in_the_background_sends_no_frames(film: Film) -> None:
    connection = film.begin()
    film.page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    film.pass_time(20 * INTERVAL_MS)
    film.page.evaluate("show('blue')")
    film.page.evaluate("delete document.hidden")
    number, image = film.next_frame(connection)
    assert number == 0
    assert_blue(image)  # not one of before
