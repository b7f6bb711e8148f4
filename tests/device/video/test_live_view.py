"""Which frames are sent, and which results hold between answers; with events and times as input."""

import math

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument, Unavailable
from nearsight.device.recognition import Recognition
from nearsight.device.video.live_view import Done, LiveView, StreamSettings
from support.camera import UNKNOWN, blurred, corners, frame, gray, recognition

ASKED, LOOKED, TRACKED, SUPERSEDED = Done.ASKED, Done.LOOKED, Done.TRACKED, Done.SUPERSEDED


class Camera:
    """Passes frames to a view, by default 30 per second."""

    def __init__(self, most: int = 2, refresh_s: float = 0.1, *, looks_here: bool = False) -> None:
        self.view = LiveView(StreamSettings(credits=most, refresh_s=refresh_s), looks_here=looks_here)
        self.number, self.now_s = -1, 0.0

    def shows(self, image: np.ndarray, after_s: float = 1 / 30) -> Done:
        self.number, self.now_s = self.number + 1, self.now_s + after_s
        return self.view.frame(self.number, gray(image), self.now_s)

    def answered(self, number: int, answer: Recognition) -> None:
        self.view.answered(number, answer)

    def shows_known(self, name: str | None = "0042") -> None:
        """Show a frame that is sent and answered before the next one."""
        assert self.shows(frame()) is ASKED
        self.answered(self.number, recognition(name, corners()) if name else UNKNOWN)

    @property
    def known(self) -> str | None:
        return self.view.current.recognition.object_id if self.view.current else None


def test_the_first_frame_is_sent_and_without_a_result_before_its_answer() -> None:
    camera = Camera()
    assert camera.shows(frame()) is ASKED
    assert (camera.view.current, camera.view.outline) == (None, None)


def test_between_answers_the_outline_follows_the_picture() -> None:
    camera = Camera(refresh_s=math.inf)
    camera.shows_known()
    for left in range(62, 90, 2):
        assert camera.shows(frame(left=left)) is TRACKED
        assert camera.known == "0042"
        assert np.array(camera.view.outline) == pytest.approx(np.array(corners(left=left)), abs=2)


def test_a_late_answer_is_shown_at_the_current_position_of_the_picture() -> None:
    camera = Camera(most=1)
    camera.shows(frame())
    for left in (66, 72, 78):
        assert camera.shows(frame(left=left)) is SUPERSEDED
    camera.answered(0, recognition(where=corners()))
    camera.shows(frame(left=84))
    assert camera.view.current is not None and camera.view.current.frame.number == 0
    assert np.array(camera.view.outline) == pytest.approx(np.array(corners(left=84)), abs=2)


def test_credits_bound_the_frames_in_flight() -> None:
    camera = Camera(most=2)
    done = [camera.shows(frame(left=60 + 4 * step)) for step in range(5)]
    assert done == [ASKED, ASKED, SUPERSEDED, SUPERSEDED, SUPERSEDED]
    camera.answered(0, UNKNOWN)
    assert camera.shows(frame(left=80)) is ASKED


def test_while_the_scene_is_unknown_one_question_is_in_flight() -> None:
    camera = Camera(most=2, refresh_s=0.0)
    camera.shows_known(None)
    done = [camera.shows(frame(left=60 + 2 * step)) for step in range(1, 4)]
    assert done == [ASKED, SUPERSEDED, SUPERSEDED]
    camera.answered(1, recognition(where=corners(left=62)))
    assert [camera.shows(frame(left=66 + 4 * step)) for step in range(1, 4)] == [ASKED, ASKED, SUPERSEDED]


def test_a_device_looks_itself_at_a_frame_that_cannot_be_sent_one_at_a_time() -> None:
    camera = Camera(most=1, looks_here=True)
    done = [camera.shows(frame(left=60 + 4 * step)) for step in range(3)]
    assert done == [ASKED, LOOKED, SUPERSEDED]
    camera.answered(1, recognition(where=corners(left=64)))
    camera.answered(0, UNKNOWN)
    assert camera.shows(frame(left=72)) is ASKED, "the look took no credit"
    assert camera.known == "0042"
    assert np.array(camera.view.outline) == pytest.approx(np.array(corners(left=72)), abs=2)


def test_a_look_that_finds_nothing_is_neither_an_answer_nor_a_failure() -> None:
    camera = Camera(most=1, looks_here=True)
    camera.shows(frame())
    for left in (64, 68):
        assert camera.shows(frame(left=left)) is LOOKED
        camera.view.failed(camera.number, Unavailable("no tier was asked"), camera.now_s)
        assert (camera.view.current, camera.view.error) == (None, None)
    camera.answered(0, UNKNOWN)
    assert camera.shows(frame(left=70), after_s=0.1) is ASKED


def test_a_known_object_needs_no_look_between_its_requests() -> None:
    camera = Camera(most=1, refresh_s=0.0, looks_here=True)
    camera.shows_known()
    done = [camera.shows(frame(left=60 + 4 * step)) for step in range(1, 4)]
    assert done == [ASKED, SUPERSEDED, SUPERSEDED]


def test_in_a_fast_turn_and_after_failures_the_device_still_looks() -> None:
    camera = Camera(refresh_s=0.0, looks_here=True)
    camera.shows_known(None)
    assert camera.shows(frame(2, left=160), after_s=0.05) is LOOKED
    camera.answered(camera.number, recognition("new", corners(left=160)))
    assert camera.shows(frame(2, left=160), after_s=0.3) is ASKED
    assert camera.known == "new"
    camera.view.failed(camera.number, Unavailable("nobody is there"), camera.now_s)
    assert camera.shows(frame(3), after_s=0.1) is LOOKED
    camera.answered(camera.number, recognition("other", corners()))
    assert camera.view.error is not None, "no tier has answered"
    assert camera.shows(frame(3, left=64), after_s=0.04) is Done.PAUSED
    assert camera.known == "other"


def test_a_valid_answer_is_refreshed_when_it_is_old() -> None:
    camera = Camera(refresh_s=0.1)
    camera.shows_known()
    done = [camera.shows(frame(left=60 + 4 * step), after_s=0.04) for step in range(1, 4)]
    assert done == [TRACKED, TRACKED, ASKED]


def test_an_unchanged_picture_is_not_asked_for_again_for_a_while() -> None:
    camera = Camera(refresh_s=0.0)
    camera.shows_known()
    assert [camera.shows(frame()) for _ in range(5)] == [Done.UNCHANGED] * 5
    assert camera.view.outline == pytest.approx(np.array(corners()), abs=1)
    assert camera.shows(frame(), after_s=1.0) is ASKED


def test_a_picture_that_is_still_being_asked_for_is_not_asked_twice() -> None:
    camera = Camera()
    assert [camera.shows(frame()) for _ in range(3)] == [ASKED, Done.UNCHANGED, Done.UNCHANGED]


def test_only_repeatedly_unknown_pictures_receive_a_second_lookup() -> None:
    camera, looks = Camera(refresh_s=0.0), []
    for step in range(60):
        assert camera.shows(frame(left=60 + 4 * (step % 2)), after_s=0.1) is ASKED
        looks.append(camera.view.one_look)
        camera.answered(camera.number, UNKNOWN)
    assert [step for step, one in enumerate(looks) if not one] == [1, 21, 41]


def test_blurred_frames_are_not_asked() -> None:
    camera = Camera(refresh_s=0.0)
    camera.shows_known()
    assert camera.shows(blurred(frame(left=70))) is Done.BLURRED
    assert camera.shows(frame(left=70)) is ASKED


def test_frames_of_a_fast_pan_are_skipped_unless_it_continues() -> None:
    camera = Camera(refresh_s=0.0)
    camera.shows_known(None)
    turning = [
        camera.shows(frame(number, left=60 if number % 2 else 160), after_s=0.05) for number in range(2, 9)
    ]
    assert turning == [Done.BLURRED] * 5 + [ASKED, Done.BLURRED]


def test_a_lost_picture_has_no_result_and_is_sent_immediately() -> None:
    camera = Camera(refresh_s=math.inf)
    camera.shows_known()
    assert camera.shows(frame(2), after_s=0.3) is ASKED
    assert (camera.known, camera.view.outline) == (None, None)


def test_an_answer_for_an_earlier_picture_is_not_shown() -> None:
    camera = Camera(most=1)
    camera.shows(frame(1))
    camera.shows(frame(2))
    camera.answered(0, recognition(where=corners()))
    assert camera.shows(frame(2)) is ASKED
    assert camera.known is None


def test_an_answer_older_than_the_one_in_force_is_not_shown() -> None:
    camera = Camera(refresh_s=0.0)
    camera.shows(frame())
    camera.shows(frame(left=66))
    camera.answered(1, recognition("new", corners(left=66)))
    camera.answered(0, recognition("old", corners()))
    camera.shows(frame(left=66))
    assert camera.known == "new"


def test_a_label_without_corners_holds_until_the_scene_changes() -> None:
    camera = Camera(refresh_s=math.inf)
    camera.shows(frame())
    camera.answered(0, recognition("cat"))
    for left in (62, 64, 66):
        assert camera.shows(frame(left=left)) is TRACKED
        assert (camera.known, camera.view.outline) == ("cat", None)
    assert camera.shows(frame(2), after_s=0.3) is ASKED
    assert camera.known is None


def test_an_answer_without_corners_keeps_only_the_outline_of_the_same_object() -> None:
    for name, kept in (("0042", True), ("cat", False)):
        camera = Camera(refresh_s=0.0)
        camera.shows_known()
        camera.shows(frame(left=64))
        camera.answered(camera.number, recognition(name))
        camera.shows(frame(left=66))
        assert (camera.known, camera.view.outline is not None) == (name, kept)


def test_a_picture_that_is_tracked_stays_known_through_two_unknown_answers() -> None:
    camera = Camera(refresh_s=0.0)
    camera.shows_known()
    for step in range(1, 4):
        assert camera.shows(frame(left=60 + 4 * step)) is ASKED
        assert camera.known == "0042"
        camera.answered(camera.number, UNKNOWN)
    camera.shows(frame(left=76))
    assert camera.known is None and camera.view.current is not None


def test_unknown_holds_as_well() -> None:
    camera = Camera()
    camera.shows_known(None)
    assert camera.shows(frame(left=63)) is TRACKED
    assert camera.view.current is not None and not camera.view.current.recognition.known


def test_after_failures_the_stream_waits_longer_and_longer_and_the_answer_still_holds() -> None:
    camera = Camera(most=1, refresh_s=0.0)
    camera.shows_known()
    waits = []
    for _ in range(6):
        while (done := camera.shows(frame(left=60 + camera.number % 9), after_s=0.05)) is not ASKED:
            assert done in {Done.PAUSED, Done.UNCHANGED}
            assert camera.known == "0042"
        waits.append(camera.now_s)
        camera.view.failed(camera.number, Unavailable("nobody is there"), camera.now_s)
        assert camera.view.error is not None
    pauses = np.diff(waits)
    assert pauses[0] < pauses[2] < pauses[3] and max(pauses) < 3
    camera.now_s += 3
    assert camera.shows(frame(left=80)) is ASKED
    camera.answered(camera.number, recognition(where=corners(left=80)))
    assert camera.view.error is None
    assert camera.shows(frame(left=84)) is ASKED, "one answer ends the pauses"


def test_a_question_that_failed_is_put_again_for_the_same_picture() -> None:
    camera = Camera()
    camera.shows(frame())
    camera.view.failed(0, Unavailable("nobody is there"), camera.now_s)
    assert camera.shows(frame(), after_s=1.0) is ASKED


@pytest.mark.parametrize(
    "wrong", [{"credits": 0}, {"refresh_s": -1}, {"timeout_s": 0}, {"timeout_s": 86_401}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match="credit"):
        StreamSettings(**wrong)  # type: ignore[arg-type]
