"""A network over frames: reuse, full executions, and unexpected frames."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InternalError, InvalidArgument, InvalidImage, NotFound
from nearsight.common.inference.tensors import TensorSpec
from nearsight.common.video.matching import Match, ShiftMatcher
from nearsight.common.video.regions import Rectangle
from nearsight.device.video.result import EXPIRED, FIRST, NO_MATCH, NO_SAVING, RESTING, SKIPPED
from nearsight.device.video.session import VideoSession
from nearsight.device.video.settings import VideoSettings
from support.mirror import SIDE, Frame, Mirror, noise, psnr_db, session_of, shown, with_patch


def test_the_first_frame_is_computed_fully_and_an_equal_one_is_reused() -> None:
    session = session_of(Mirror())
    first, second = session.run(noise()), session.run(noise())
    assert (first.whole, first.matched, first.recomputed, first.blocks.any()) == (FIRST, 0.0, 1.0, False)
    assert (second.number, second.whole, second.matched, second.recomputed) == (1, "", 1.0, 0.0)
    assert second.blocks.all()
    assert (shown(second) == noise()).all()


def test_changed_blocks_are_computed_and_others_reused() -> None:
    session = session_of(Mirror())
    session.run(noise())
    frame = with_patch(noise(), (20, 30))
    result = session.run(frame)
    assert (shown(result) == frame).all()
    assert 0 < result.recomputed < 0.15
    assert 0.9 < result.matched < 1
    assert not result.blocks[2, 3]
    assert result.blocks[0, 0]


def test_motion_by_the_stride_is_matched() -> None:
    session = session_of(Mirror())
    picture = noise(side=SIDE + 8)
    session.run(picture[:SIDE, :SIDE])
    result = session.run(picture[:SIDE, 8 : SIDE + 8])
    assert result.offset == (0, 8)
    assert (shown(result) == picture[:SIDE, 8 : SIDE + 8]).all()
    assert result.recomputed < 0.4


def test_with_a_margin_motion_by_one_pixel_is_matched() -> None:
    session = session_of(Mirror(), margin=0.25)
    picture = noise(side=SIDE + 32)
    for step in range(5):
        frame = picture[step : SIDE + 16 + step, 2 * step : SIDE + 16 + 2 * step]
        result = session.run(frame)
        top, left = 8 - step, 8 - 2 * step
        assert result.window == (top / 80, left / 80, (top + SIDE) / 80, (left + SIDE) / 80)
        assert (shown(result) == frame[top : top + SIDE, left : left + SIDE]).all()
        assert (result.offset, result.recomputed) == ((0, 0), 0.0 if step else 1.0)


def test_with_a_margin_the_window_is_in_the_middle_again_when_a_frame_expires() -> None:
    session = session_of(Mirror(), margin=0.25, expiry=3, check_every=0)
    picture = noise(side=SIDE + 32)
    tops = [session.run(picture[step : SIDE + 16 + step, : SIDE + 16]).window[0] * 80 for step in range(4)]
    assert tops == pytest.approx([8, 7, 6, 8])


def test_with_a_margin_size_and_format_may_change_in_mid_stream() -> None:
    session = session_of(Mirror(), margin=0.25)
    for shape in ((80, 80), (30, 40), (200, 90)):
        frame = np.asarray(cv2.resize(noise(), shape[::-1]), np.uint8)
        grey = np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY), np.uint8)
        assert [session.run(one).outputs["photo"].shape for one in (frame, grey)] == [(1, 3, SIDE, SIDE)] * 2


@pytest.mark.parametrize(("margin", "whole_ms"), [(0.0, 20.0), (0.25, 5.0)])
def test_without_a_margin_or_a_gain_by_motion_the_full_frame_is_computed(
    margin: float, whole_ms: float
) -> None:
    network = Mirror()
    network.whole_times_ms = whole_ms
    session, without = session_of(network, margin=margin), session_of(Mirror())
    picture = noise(side=SIDE + 32)
    for step in range(12):
        frame = picture[step : SIDE + 16 + step, : SIDE + 16]
        result, expected = session.run(frame), without.run(frame)
        assert result.window == (0.0, 0.0, 1.0, 1.0)
        assert (shown(result) == shown(expected)).all()
        assert (result.whole, result.offset) == (expected.whole, expected.offset)


@pytest.mark.parametrize("composite", [True, False])
def test_a_slow_fade_drifts_against_the_last_frame_and_not_against_the_composite(composite: bool) -> None:
    session = session_of(Mirror(), composite=composite, expiry=100, check_every=0)
    lowest_db = 100.0
    for step in range(30):
        frame = np.full((SIDE, SIDE, 3), 100 + 5 * step, np.uint8)
        lowest_db = min(lowest_db, psnr_db(shown(session.run(frame)), frame))
    assert (lowest_db > 20) == composite


def test_size_and_format_may_change_in_mid_stream() -> None:
    session = session_of(Mirror())
    large = np.asarray(cv2.resize(noise(), (2 * SIDE, 3 * SIDE), interpolation=cv2.INTER_NEAREST), np.uint8)
    grey = cv2.cvtColor(noise(), cv2.COLOR_BGR2GRAY)
    frames = [noise(), large, grey, grey[:, :, None], cv2.cvtColor(noise(), cv2.COLOR_BGR2BGRA), noise()]
    results = [session.run(np.asarray(frame, np.uint8)) for frame in frames]
    for result, frame in zip(
        results, [noise(), noise(), *[cv2.merge([grey] * 3)] * 2, noise(), noise()], strict=True
    ):
        assert psnr_db(shown(result), np.asarray(frame, np.uint8)) > 20


def test_black_frames_and_gaps_are_processed_like_other_frames() -> None:
    session = session_of(Mirror())
    black = np.zeros((SIDE, SIDE, 3), np.uint8)
    wholes = [session.run(frame).whole for frame in (noise(), black, black, noise(1), noise(7), noise(7))]
    assert wholes == [FIRST, NO_MATCH, "", NO_MATCH, SKIPPED, ""]


@pytest.mark.parametrize(
    "frame",
    [
        None,
        np.zeros((SIDE, SIDE, 3), np.float32),
        np.zeros((0, SIDE, 3), np.uint8),
        np.zeros((SIDE, SIDE, 2), np.uint8),
        np.zeros(SIDE, np.uint8),
    ],
    ids=["none", "floats", "empty", "two channels", "a line"],
)
def test_invalid_frames_are_refused_and_the_session_continues(frame: Frame) -> None:
    session = session_of(Mirror())
    session.run(noise())
    with pytest.raises(InvalidImage, match="a frame must be"):
        session.run(frame)
    assert session.run(noise()).recomputed == 0


def test_a_network_without_spatial_reuse_is_executed_fully_after_any_change() -> None:
    session = session_of(Mirror(why_whole="it begins with Flatten"), expiry=2, check_every=0)
    frames = [noise(), noise(), noise(), noise(1), with_patch(noise(1), (20, 20))]
    results = [session.run(frame) for frame in frames]
    whole = "it begins with Flatten"
    assert [one.whole for one in results] == [FIRST, "", EXPIRED, whole, whole]
    assert (shown(results[-1]) == frames[-1]).all(), "also what matched"


def test_without_a_gain_by_reuse_frames_are_computed_fully_and_matched_rarely() -> None:
    network = Mirror()
    network.pays_from = 0.9
    session = session_of(network, expiry=100)
    half = [noise(), noise()]
    half[1][:, : SIDE // 2] = noise(1)[:, : SIDE // 2]
    results = [session.run(half[step % 2]) for step in range(40)]
    assert results[1].whole == NO_SAVING
    assert all((shown(one) == half[one.number % 2]).all() for one in results)
    skipped = [one.number for one in results if one.whole == SKIPPED]
    assert len(skipped) > 25
    assert session.run(half[1]).whole == "", "a frame that did not change at all is seen nevertheless"


def test_while_frames_are_skipped_outputs_are_repeated_for_those_that_match_completely() -> None:
    network = Mirror()
    network.pays_from = 1.0
    session = session_of(network, expiry=1000, check_every=0)
    moving = [with_patch(noise(), (20, 2 * (number % 20))) for number in range(40)]
    results = [session.run(frame) for frame in moving]
    assert [one.whole for one in results[-3:]] == [SKIPPED] * 3
    darker = np.asarray(cv2.subtract(moving[-1], np.full_like(moving[-1], 20)), np.uint8)
    repeated = session.run(darker)
    assert repeated.whole == "", "its difference exceeds a quarter of that of a moved patch"
    assert (shown(repeated) == moving[-1]).all()


@pytest.mark.parametrize("whole_ms", [4.0, 20.0])
def test_after_a_failed_execution_no_outputs_of_an_earlier_frame_are_returned(whole_ms: float) -> None:
    network = Mirror()
    network.whole_times_ms = whole_ms
    session = session_of(network)

    def fail(_whole: bool) -> None:
        raise InternalError("out of memory")

    run = network.run
    session.run(noise())
    network.run = lambda *_: fail(True)  # type: ignore[method-assign]
    with pytest.raises(InternalError):
        session.run(noise(1))
    network.run = run  # type: ignore[method-assign]
    assert (shown(session.run(noise(1))) == noise(1)).all()


def test_a_network_of_bytes_gets_bytes() -> None:
    network = Mirror()
    network.input = TensorSpec("photo", "uint8", network.input.shape)
    assert session_of(network).tensor(noise()).max() == 255
    with pytest.raises(InvalidArgument, match=r"cannot hold pixels 0\.\.1; choose pixels 0\.\.255"):
        session_of(network, pixels="0..1")


class CountingMatcher(ShiftMatcher):
    """Counts the frames that were compared in full."""

    def __init__(self) -> None:
        super().__init__()
        self.compared = 0

    def match(self, frame: Frame, reference: Frame) -> Match:
        self.compared += 1
        return super().match(frame, reference)


def test_a_fast_network_is_executed_fully_if_a_quick_check_finds_many_changes() -> None:
    network = Mirror()
    network.whole_times_ms, network.most_changed = 4.0, 0.3
    session = session_of(network, expiry=100)
    session._matcher = counting = CountingMatcher()
    frames = [noise(), noise(), noise(), noise(2)]
    frames[1][:, : SIDE // 4] = noise(1)[:, : SIDE // 4]
    frames[2][:, : 3 * SIDE // 4] = noise(1)[:, : 3 * SIDE // 4]
    results = [session.run(frame) for frame in frames]
    assert [one.whole for one in results] == [FIRST, "", NO_SAVING, NO_SAVING]
    assert counting.compared == 1
    assert all((shown(one) == frame).all() for one, frame in zip(results, frames, strict=True))
    assert session.run(frames[-1]).whole == "", "a frame that did not change is compared, and reused"


@pytest.mark.parametrize("why_whole", ["", "it begins with Flatten"])
def test_a_fast_network_looks_rarely_at_frames_that_keep_changing_and_sees_when_they_stop(
    why_whole: str,
) -> None:
    network = Mirror(why_whole=why_whole)
    network.whole_times_ms, network.most_changed = 4.0, 0.3
    session = session_of(network, expiry=100)
    frames = [noise(number % 3) for number in range(60)]
    results = [session.run(frame) for frame in frames]
    resting = [one.number for one in results if one.whole == RESTING]
    assert len(resting) > 15
    assert all((shown(one) == frame).all() for one, frame in zip(results, frames, strict=True))
    still = [session.run(frames[0]) for _ in range(12)]
    assert [one.whole for one in still[-4:]] == [""] * 4
    assert all((shown(one) == frames[0]).all() for one in still), "no outputs of an earlier frame"


def test_a_glance_lets_no_frame_pass_that_differs_between_the_rows_that_it_sees() -> None:
    session = session_of(Mirror(why_whole="it begins with Flatten"))
    session.run(noise())
    frame = noise()
    frame[31:35] = 255 - frame[31:35]
    assert session.run(frame).whole == "it begins with Flatten"


def test_reuse_that_takes_longer_than_whole_executions_is_given_up() -> None:
    network, clock = Mirror(), ManualClock()
    network.whole_times_ms = 3.0
    session = VideoSession(network, settings=VideoSettings(expiry=5, check_every=0), clock=clock)
    network.ran = lambda whole: clock.advance(0.003 if whole else 0.004)
    results = [session.run(with_patch(noise(), (20, 2 * (number % 20)))) for number in range(60)]
    assert not results[1].whole
    assert sum(not one.whole for one in results[30:]) <= 3


def test_reuse_of_regions_is_given_up_where_a_gate_saves_more() -> None:
    """A patch moves in every other frame, and all frames fade.

    The gate repeats every other output. After a moved patch was renewed, the next frame has faded too far
    from the rest of the reference, and is executed whole.
    """
    network, clock = Mirror(), ManualClock()
    network.whole_times_ms, network.pays_from = 10.0, 0.5
    network.ran = lambda _: clock.advance(0.010 if network._share == 1.0 else 0.008)
    session = VideoSession(network, settings=VideoSettings(expiry=1000, check_every=0), clock=clock)
    dim = noise() // 4
    results = []
    for number in range(120):
        moved = with_patch(dim, (20, 8 * ((number + 1) // 2 % 6)))
        results.append(session.run(cv2.add(moved, np.full_like(moved, 20 * abs(number % 12 - 6)))))
    later = results[60:]
    assert sum(not one.whole and one.recomputed > 0 for one in later) < 15
    assert sum(not one.whole and one.recomputed == 0 for one in later) > 20


def test_the_size_of_a_network_that_leaves_it_open_may_be_given() -> None:
    session = session_of(Mirror((None, 3, None, None)), size=(48, 32))
    assert session.run(noise()).outputs["photo"].shape == (1, 3, 48, 32)
    assert session_of(Mirror((None, 3, None, None))).size == (224, 224)
    assert session_of(Mirror(), size=(48, 32)).size == (SIDE, SIDE)
    assert session_of(Mirror((None, 3, None, SIDE)), size=(48, 32)).size == (48, SIDE), "one side is open"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_px", 0),
        ("expiry", 0),
        ("regions", 0),
        ("check_every", -1),
        ("threads", 0),
        ("threshold_db", float("nan")),
        ("most_deviation", 0.0),
        ("map_tolerance", -0.1),
        ("map_tolerance", float("nan")),
        ("margin", -0.1),
        ("margin", float("nan")),
        ("size", (0, 5)),
        ("budget_ms", 0.0),
        ("pixels", "0..7"),
    ],
)
def test_invalid_settings_are_named(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"video session: {name} = "):
        VideoSettings(**{name: value})  # type: ignore[arg-type]


def test_a_missing_network_is_named() -> None:
    with pytest.raises(NotFound, match=r"there is no file 'nothing\.onnx'"):
        VideoSession("nothing.onnx")


def test_under_a_budget_weak_matches_are_deferred_except_in_the_region_of_interest() -> None:
    faint = noise()  # but for two patches of 17 dB
    for at in (0, 40):
        patch = faint[at : at + 8, at : at + 8]
        patch += np.where(patch < 128, 45, -45).astype(np.uint8)
    session = session_of(Mirror(), budget_ms=0.01, check_every=0)
    large = cv2.resize(faint, (2 * SIDE, 4 * SIDE), interpolation=cv2.INTER_NEAREST)
    session.run(noise())
    looked = session.run(np.asarray(large, np.uint8), attend=[Rectangle(164, 84, 166, 88)])
    assert looked.blocks[0, 0]
    assert not looked.blocks[4, 4]
    session = session_of(Mirror(), check_every=0)
    session.run(noise())
    assert not session.run(faint).blocks[0, 0]
