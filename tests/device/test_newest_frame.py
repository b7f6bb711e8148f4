"""A device whose tier falls behind, as with live video."""

import threading

import pytest

from nearsight import NearsightError, Overloaded, Recognition, Recognizer, RecognizerSettings
from nearsight.common.rpc.server import RpcServer, ServerSettings
from support.pictures import jpeg, picture
from support.recognition_server import ScriptedRecognition, response
from support.waiting import wait_until


@pytest.mark.parametrize(("newest_frame_wins", "dropped"), [(True, 2), (False, 0)])
def test_a_tier_that_falls_behind_drops_the_oldest_frames_if_asked_to(
    newest_frame_wins: bool, dropped: int
) -> None:
    gate = threading.Event()

    def when_open():  # type: ignore[no-untyped-def]
        assert gate.wait(20)
        return response("edge")

    service = ScriptedRecognition(when_open)
    settings = ServerSettings(workers=1, newest_wins_limit=2)
    sdk_settings = RecognizerSettings(
        newest_frame_wins=newest_frame_wins, timeout_s=20, prefetch={"enabled": False}
    )
    outcomes: list[Recognition | NearsightError] = []
    with (
        RpcServer([service], tier="edge", settings=settings) as server,
        Recognizer(server.endpoint, None, "museum", settings=sdk_settings) as sdk,
    ):
        sdk.recognize(jpeg(picture(1)), outcomes.append)
        assert service.asked.acquire(timeout=30)  # the only worker is busy from here on
        for number in range(4):
            sdk.recognize(jpeg(picture(1)), outcomes.append)
            waiting = min(number + 1, 2) if newest_frame_wins else number + 1
            wait_until(lambda n=waiting: server.queue_length == n, what="the queue")
        wait_until(lambda: len(outcomes) == dropped, what="the dropped frames")
        assert all(isinstance(outcome, Overloaded) for outcome in outcomes)
        gate.set()
        wait_until(lambda: len(outcomes) == 5, what="every outcome")
    assert sum(isinstance(outcome, Recognition) for outcome in outcomes) == 5 - dropped
