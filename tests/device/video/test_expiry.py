"""Frames that expire: when, on which of them the deviation is measured, and what a deviation changes."""

from __future__ import annotations

import numpy as np
import pytest

from nearsight.common.clock import ManualClock
from nearsight.device.video.result import EXPIRED, FIRST, PAUSED
from nearsight.device.video.session import VideoSession
from nearsight.device.video.settings import VideoSettings
from support.mirror import SIDE, Mirror, noise, restless, session_of, shown


def test_every_nth_frame_is_whole() -> None:
    session = session_of(Mirror(), expiry=4, check_every=0)
    assert [session.run(noise()).whole for _ in range(9)] == [FIRST, "", "", "", EXPIRED, "", "", "", EXPIRED]


def test_with_an_expiry_of_one_every_frame_is_computed_without_matching() -> None:
    network = Mirror()
    session = session_of(network, expiry=1)
    assert [session.run(noise()).whole for _ in range(3)] == [FIRST, EXPIRED, EXPIRED]
    assert network.asked == []


def test_a_deviation_is_measured_on_frames_that_expire_and_reported() -> None:
    session = session_of(Mirror(), expiry=3, check_every=2, most_deviation=0.05)
    frames = [restless(step, 100 + step) for step in range(16)]
    results = [session.run(frame) for frame in frames]
    assert [one.number for one in results if one.deviation is not None] == [3, 9, 15]
    assert results[3].deviation == pytest.approx(3 / 103, rel=0.1)
    assert (shown(results[3]) == frames[3]).all(), "the answer is that of the whole execution"


@pytest.mark.parametrize("whole_ms", [4.0, 20.0])
def test_a_deviation_is_measured_earlier_on_a_frame_that_matches_completely(whole_ms: float) -> None:
    network = Mirror()
    network.whole_times_ms = whole_ms
    session = session_of(network, expiry=8, check_every=2, most_deviation=0.05)
    results = [session.run(np.full((SIDE, SIDE, 3), 100 + step, np.uint8)) for step in range(20)]
    assert [one.number for one in results if one.deviation is not None] == [4, 16]
    assert [one.number for one in results if one.whole == EXPIRED] == [4, 12, 16]
    assert results[4].deviation == pytest.approx(4 / 104, rel=1e-3)


def test_outputs_that_deviate_raise_the_threshold_and_then_pause_the_reuse() -> None:
    session = session_of(Mirror(), expiry=2, check_every=1, most_deviation=1e-6)
    results = [session.run(restless(step, 100 + step // 2 % 2)) for step in range(40)]
    assert session.threshold_db == 35
    assert results[-1].whole == PAUSED
    assert session_of(Mirror(), expiry=2).run(noise()).whole == FIRST


def test_the_threshold_falls_when_outputs_do_not_deviate_but_not_below_14_db() -> None:
    session = session_of(Mirror(), expiry=2, check_every=1, most_deviation=0.01)
    for step in range(6):
        session.run(restless(step, 100 + 8 * (step // 2 % 2)))
    raised_db = session.threshold_db
    for step in range(24):
        session.run(restless(step, 100))
    assert raised_db > 20 > session.threshold_db == 14
    assert session.map_tolerance == pytest.approx(0.2 * 10 ** (6 / 20))
    assert session.network.tolerance == session.map_tolerance


def test_while_the_threshold_moves_each_frame_that_expires_is_checked() -> None:
    session = session_of(Mirror(), expiry=2, check_every=5)
    results = [session.run(restless(step, 100)) for step in range(20)]
    assert [one.number for one in results if one.deviation is not None] == [2, 4, 12]


def test_without_checks_the_threshold_stays() -> None:
    session = session_of(Mirror(), expiry=2, check_every=0)
    for _ in range(8):
        session.run(np.full((SIDE, SIDE, 3), 100, np.uint8))
    assert session.threshold_db == 20


def test_under_a_budget_blocks_expire_and_only_the_guard_computes_full_frames() -> None:
    network, clock = Mirror(), ManualClock()
    network.ran = lambda _: clock.advance(1e-3 * network.explain()[0].share)
    settings = VideoSettings(expiry=5, check_every=3, budget_ms=0.6)
    session = VideoSession(network, settings=settings, clock=clock)
    frames = [np.full((SIDE, SIDE, 3), 100 + step, np.uint8) for step in range(40)]
    results = [session.run(frame) for frame in frames]
    assert [one.number for one in results if one.whole] == [0, 5, 20, 35]
    assert [one.number for one in results if one.deviation is not None] == [5, 20, 35]
    assert all(int(shown(one).min()) > 100 + one.number - 5 for one in results)
    assert max(one.recomputed for one in results if not one.whole) < 0.6
