"""Frames that are matched or skipped."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from nearsight.device.video.back_off import BackOff

NEAR, FAR = 1.0, 100.0


def skipped(back_off: BackOff, frames: int) -> list[int]:
    """The number of skipped frames if no match succeeds."""
    found = []
    for number in range(frames):
        if back_off.skips(FAR):
            back_off.whole(5.0)
            found.append(number)
        else:
            back_off.not_reused(FAR, match_ms=1.0, whole_ms=5.0)
    return found


def test_after_failed_matches_fewer_frames_are_matched_but_always_some() -> None:
    back_off = BackOff(5.0)
    found = skipped(back_off, 200)
    matched = [number for number in range(200) if number not in found]
    gaps = [later - earlier for earlier, later in pairwise(matched)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == 32


def test_while_reuse_gains_every_frame_is_matched_also_after_a_miss() -> None:
    back_off = BackOff(5.0)
    for number in range(30):
        assert not back_off.skips(FAR)
        if number % 10:
            back_off.reused(FAR, took_ms=3.0)
        else:
            back_off.not_reused(FAR, match_ms=0.5, whole_ms=5.0)


def test_reuse_that_takes_longer_than_whole_frames_is_backed_off_from() -> None:
    back_off = BackOff(5.0)
    matched = 0
    for _ in range(100):
        if not back_off.skips(FAR):
            back_off.reused(FAR, took_ms=5.5)
            matched += 1
    assert matched < 10


def test_reuse_that_saves_less_than_a_gate_is_backed_off_from() -> None:
    back_off = BackOff(5.0)
    repeats = np.random.default_rng(1).random(300) < 0.6
    matched = 0
    for repeated in repeats:
        if not back_off.skips(FAR):
            back_off.reused(FAR, took_ms=3.0, repeats=bool(repeated))
            matched += 1
    assert matched < 100, "it takes 3 ms per frame, the gate 2"


def test_a_frame_that_is_much_nearer_is_matched_all_the_same() -> None:
    back_off = BackOff(5.0)
    skipped(back_off, 50)
    assert not back_off.skips(NEAR)
    back_off.reused(NEAR, took_ms=0.1)
    assert not back_off.skips(FAR), "matching gained more than it had cost"


def test_after_a_frame_that_prepared_reuse_the_next_one_is_matched() -> None:
    back_off = BackOff(5.0)
    skipped(back_off, 50)
    back_off.try_next()
    assert not back_off.skips(FAR)


def test_the_time_without_reuse_is_learned_from_whole_frames() -> None:
    back_off = BackOff(0.0)
    back_off.reused(FAR, took_ms=9.0)
    assert not back_off.skips(FAR), "nothing is known yet"
    for _ in range(7):
        back_off.whole(5.0)
    for _ in range(4):
        back_off.reused(FAR, took_ms=9.0)
    assert back_off.skips(FAR)


@pytest.mark.parametrize(("in_vain", "cycle"), [(8, 4), (12, 6), (16, 8), (1000, 8)])
def test_the_more_frames_differ_the_fewer_are_compared_down_to_one_of_eight(in_vain: int, cycle: int) -> None:
    back_off = BackOff(5.0)
    assert not back_off.rests()
    for _ in range(in_vain):
        back_off.compared_in_vain()
    rests = [back_off.rests() for _ in range(10 * cycle)]
    windows = {rests[at : at + cycle].count(False) for at in range(9 * cycle)}
    assert windows == {2}, "a new reference, and a frame compared"


@pytest.mark.parametrize("ends", ["near frame", "gain", "repetition"])
def test_a_near_or_equal_frame_or_a_gain_ends_the_rest(ends: str) -> None:
    back_off = BackOff(5.0)
    skipped(back_off, 50)
    assert any(back_off.rests() for _ in range(8))
    if ends == "gain":
        back_off.reused(FAR, took_ms=-100.0)
    elif ends == "repetition":
        back_off.repeated()
    else:
        assert not back_off.skips(NEAR)
    assert not any(back_off.rests() for _ in range(8))
