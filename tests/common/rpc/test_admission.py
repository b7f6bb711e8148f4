from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import DeadlineExceeded, Overloaded
from nearsight.common.rpc.admission import AdmissionQueue


def queue_of(limit: int = 3, timeout_s: float = 2.0, newest_limit: int = 2) -> AdmissionQueue[str]:
    return AdmissionQueue(limit=limit, timeout_s=timeout_s, newest_limit=newest_limit)


def test_requests_are_served_in_the_order_of_their_arrival() -> None:
    queue = queue_of()
    for name in "abc":
        assert queue.offer(name, now_s=0.0, deadline_s=10.0) == []
    assert [queue.take(1.0) for _ in range(4)] == [("a", []), ("b", []), ("c", []), (None, [])]


def test_a_full_queue_refuses_the_newcomer_as_overloaded() -> None:
    queue = queue_of(limit=1)
    queue.offer("a", now_s=0.0, deadline_s=10.0)
    (refused,) = queue.offer("b", now_s=0.0, deadline_s=10.0)
    assert refused.item == "b"
    assert isinstance(refused.error, Overloaded)
    assert queue.take(0.0) == ("a", [])


def test_a_full_queue_makes_room_by_refusing_those_whose_time_is_over() -> None:
    queue = queue_of(limit=1)
    queue.offer("a", now_s=0.0, deadline_s=1.0)
    (refused,) = queue.offer("b", now_s=1.0, deadline_s=10.0)
    assert refused.item == "a"
    assert isinstance(refused.error, DeadlineExceeded)
    assert queue.take(1.0) == ("b", [])


def test_a_request_whose_time_is_over_on_arrival_does_not_enter() -> None:
    queue = queue_of()
    (refused,) = queue.offer("a", now_s=5.0, deadline_s=5.0)
    assert isinstance(refused.error, DeadlineExceeded)
    assert len(queue) == 0


def test_a_request_that_waited_too_long_is_overloaded_and_not_started() -> None:
    queue = queue_of(timeout_s=2.0)
    queue.offer("a", now_s=0.0, deadline_s=10.0)
    queue.offer("b", now_s=1.0, deadline_s=10.0)
    item, refused = queue.take(2.0)
    assert item == "b"
    assert [(r.item, type(r.error)) for r in refused] == [("a", Overloaded)]


def test_sweeping_refuses_by_deadline_and_by_waiting_time_and_keeps_the_rest() -> None:
    queue = queue_of(limit=5, timeout_s=2.0)
    queue.offer("late", now_s=0.0, deadline_s=1.0)
    queue.offer("old", now_s=0.0, deadline_s=10.0)
    queue.offer("fresh", now_s=1.5, deadline_s=10.0)
    assert {(r.item, type(r.error)) for r in queue.sweep(2.0)} == {
        ("late", DeadlineExceeded),
        ("old", Overloaded),
    }
    assert queue.take(2.0) == ("fresh", [])


def test_a_newer_frame_supersedes_the_oldest_waiting_one_of_its_stream_only() -> None:
    queue = queue_of(limit=10, newest_limit=2)
    queue.offer("other", now_s=0.0, deadline_s=10.0, stream="b")
    for name in ("1", "2"):
        assert queue.offer(name, now_s=0.0, deadline_s=10.0, stream="a") == []
    (superseded,) = queue.offer("3", now_s=0.0, deadline_s=10.0, stream="a")
    assert superseded.item == "1"
    assert isinstance(superseded.error, Overloaded)
    assert [queue.take(0.0)[0] for _ in range(4)] == ["other", "2", "3", None]


def test_a_newer_frame_enters_a_full_queue_in_the_place_of_its_predecessor() -> None:
    queue = queue_of(limit=2, newest_limit=1)
    queue.offer("1", now_s=0.0, deadline_s=10.0, stream="a")
    queue.offer("other", now_s=0.0, deadline_s=10.0)
    (superseded,) = queue.offer("2", now_s=0.0, deadline_s=10.0, stream="a")
    assert superseded.item == "1"
    assert len(queue) == 2


def test_requests_that_idle_workers_take_at_once_need_no_room() -> None:
    queue = queue_of(limit=1)
    for name in "abc":
        assert queue.offer(name, now_s=0.0, deadline_s=10.0, idle=2) == []
    (refused,) = queue.offer("d", now_s=0.0, deadline_s=10.0, idle=2)
    assert refused.item == "d"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["offer", "take", "sweep"]),
            st.floats(0.0, 2.0),
            st.floats(0.0, 5.0),
            st.sampled_from([None, "a", "b"]),
        )
    )
)
def test_every_request_leaves_exactly_once_and_the_queue_stays_bounded(
    steps: list[tuple[str, float, float, str | None]],
) -> None:
    queue: AdmissionQueue[int] = AdmissionQueue(limit=3, timeout_s=1.0, newest_limit=2)
    now_s, offered, left = 0.0, 0, []
    for action, wait_s, time_left_s, stream in steps:
        now_s += wait_s
        if action == "offer":
            refused = queue.offer(offered, now_s=now_s, deadline_s=now_s + time_left_s, stream=stream)
            offered += 1
        elif action == "take":
            item, refused = queue.take(now_s)
            left += [] if item is None else [item]
        else:
            refused = queue.sweep(now_s)
        left += [r.item for r in refused]
        assert len(queue) <= 3
    left += [r.item for r in queue.sweep(now_s + 10.0)]
    assert sorted(left) == list(range(offered))
