"""Fair order of frames to the edge, and how many may be in flight."""

import random

from hypothesis import given
from hypothesis import strategies as st

from nearsight.edge.gateway.turns import FIRST, LEAST, Turns

Event = tuple[str, int]


def taken(turns: Turns[str, int]) -> list[int]:
    frames = []
    while (frame := turns.take()) is not None:
        frames.append(frame)
    return frames


def test_a_newer_frame_of_a_stream_keeps_the_turn_of_the_one_that_it_replaces() -> None:
    turns: Turns[str, int] = Turns()
    assert turns.offer("a", 1) is None
    assert turns.offer("b", 2) is None
    assert turns.offer("a", 3) == 1
    assert taken(turns) == [3, 2]


def test_streams_take_turns_whoever_sends_most() -> None:
    turns: Turns[str, int] = Turns()
    for number in range(int(FIRST)):
        turns.offer(f"before {number}", number)
    taken(turns)
    for number in range(100, 110):
        turns.offer("greedy", number)
    turns.offer("modest", 200)
    order = []
    for number in range(110, 113):
        turns.answered(0.0, 10.0)
        order += taken(turns)
        turns.offer("greedy", number)
    assert order[:2] == [109, 200]


def simulated_waits(workers: int, service_ms: float, frames: int) -> tuple[list[float], float]:
    """Waiting times of 100 busy streams at an edge with so many workers; and the last limit."""
    turns: Turns[int, int] = Turns()
    free_ms = [0.0] * workers
    at_edge: list[tuple[float, float]] = []
    now_ms, waits, rng = 0.0, [], random.Random(1)
    for _ in range(frames):
        for stream in range(100):
            turns.offer(stream, stream)
        while turns.take() is not None:
            worker = min(range(workers), key=free_ms.__getitem__)
            starts_ms = max(now_ms, free_ms[worker])
            free_ms[worker] = starts_ms + service_ms * rng.uniform(0.8, 1.2)
            at_edge.append((free_ms[worker], starts_ms - now_ms))
        at_edge.sort()
        now_ms, wait_ms = at_edge.pop(0)
        waits.append(wait_ms)
        turns.answered(wait_ms, service_ms)
    return waits, turns.places


def test_so_many_frames_are_at_the_edge_as_it_works_on() -> None:
    for workers in (2, 8, 32):
        waits, places = simulated_waits(workers, 10.0, 3000)
        assert workers <= places <= 2.5 * workers
        assert sorted(waits[-1000:])[950] <= 20.0


def test_an_overloaded_edge_receives_fewer_concurrent_frames_but_at_least_one() -> None:
    turns: Turns[str, int] = Turns()
    for number in range(10):
        turns.offer("a", number)
        assert turns.take() == number
        turns.failed(overloaded=True)
    assert turns.places == LEAST
    turns.offer("a", 1)
    assert turns.take() == 1
    turns.failed(overloaded=False)
    assert turns.at_edge == 0


@given(st.lists(st.tuples(st.sampled_from(["offer", "take", "answer", "fail", "gone"]), st.integers(0, 3))))
def test_each_frame_is_taken_replaced_or_withdrawn_once(events: list[Event]) -> None:
    turns: Turns[int, int] = Turns()
    offered, seen = 0, list[int]()
    for event, stream in events:
        if event == "offer":
            offered += 1
            replaced = turns.offer(stream, offered)
            seen += [] if replaced is None else [replaced]
        elif event == "gone":
            withdrawn = turns.withdraw(stream)
            seen += [] if withdrawn is None else [withdrawn]
        elif event == "take":
            frame = turns.take()
            seen += [] if frame is None else [frame]
        elif turns.at_edge:
            turns.failed(overloaded=True) if event == "fail" else turns.answered(stream * 5.0, 5.0)
        assert turns.at_edge >= 0
        assert turns.places >= LEAST
    seen += turns.withdraw_all()
    assert sorted(seen) == list(range(1, offered + 1))
