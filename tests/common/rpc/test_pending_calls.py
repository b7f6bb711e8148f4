import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.errors import DeadlineExceeded, NearsightError, Overloaded, Unauthenticated, Unavailable
from nearsight.common.rpc.pending_calls import Connect, Fail, PendingCall, PendingCalls, Send
from nearsight.common.rpc.settings import ChannelSettings

GONE = Unavailable("gone")


def calls_with(**settings: Any) -> PendingCalls[PendingCall]:
    return PendingCalls("tcp://server:1", ChannelSettings(**settings), random.Random(1))


def call(number: int = 1, *, deadline_s: float = 10.0, idempotent: bool = True) -> PendingCall:
    return PendingCall(number, deadline_s, idempotent)


def connected(**settings: Any) -> PendingCalls[PendingCall]:
    calls = calls_with(**settings)
    first = call(1000)
    calls.submit(first, 0.0)
    calls.connected(0.0)
    calls.answered(1000)
    return calls


def failures(actions: list[Any]) -> list[tuple[int, type[NearsightError]]]:
    return [(a.call.request_id, type(a.error)) for a in actions if isinstance(a, Fail)]


def sends(actions: list[Any]) -> list[int]:
    return [a.call.request_id for a in actions if isinstance(a, Send)]


def test_the_first_call_connects_and_is_sent_once_connected() -> None:
    calls = calls_with()
    assert calls.submit(call(1), 0.0) == [Connect()]
    assert calls.submit(call(2), 0.0) == []
    assert sends(calls.connected(0.1)) == [1, 2]
    assert sends(calls.submit(call(3), 0.2)) == [3]


def test_an_answer_ends_its_call_once() -> None:
    calls = connected()
    calls.submit(call(1), 0.0)
    answered = calls.answered(1)
    assert answered is not None
    assert answered.request_id == 1
    assert calls.answered(1) is None
    assert calls.answered(99) is None
    assert failures(calls.tick(100.0)) == []


def of_kind(number: int, kind: str) -> PendingCall:
    one = call(number)
    one.kind = kind
    return one


def test_calls_that_a_busy_server_would_refuse_fail_without_being_sent() -> None:
    calls = connected()
    calls.submit(of_kind(1, "photos of phone"), 0.0)
    refused = calls.answered(1)
    assert refused is not None
    calls.server_busy(refused, 1.0, 0.0)
    assert calls.submit(of_kind(2, "photos of phone"), 0.5) == []
    assert sends(calls.submit(of_kind(3, "health of phone"), 0.5)) == [3]
    assert sends(calls.submit(of_kind(4, "photos of tablet"), 0.5)) == [4]
    due_s = calls.next_due_s()
    assert due_s is not None
    assert 0.5 < due_s <= 0.6
    assert failures(calls.tick(due_s)) == [(2, Overloaded)]
    assert sends(calls.submit(of_kind(5, "photos of phone"), 1.0)) == [5]


def test_the_pause_that_a_busy_server_requests_is_limited() -> None:
    calls = connected()
    calls.server_busy(of_kind(1, "photos"), 1e6, 0.0)
    assert sends(calls.submit(of_kind(2, "photos"), 6.0)) == [2]


def test_a_new_connection_ends_the_pause_for_a_busy_server() -> None:
    calls = connected()
    calls.server_busy(of_kind(1, "photos"), 5.0, 0.0)
    calls.submit(of_kind(2, "photos"), 0.0)
    assert failures(calls.disconnected(GONE, 0.01)) == []
    assert failures(calls.tick(0.1)) == [(2, Overloaded)]
    calls.connected(0.2)
    assert sends(calls.submit(of_kind(3, "photos"), 0.2)) == [3]


def test_a_call_ends_at_its_deadline_whether_it_was_sent_or_not() -> None:
    calls = connected()
    calls.submit(call(1, deadline_s=1.0), 0.0)
    assert failures(calls.tick(0.9)) == []
    assert failures(calls.tick(1.0)) == [(1, DeadlineExceeded)]
    unconnected = calls_with()
    unconnected.submit(call(2, deadline_s=1.0), 0.0)
    assert failures(unconnected.tick(1.0)) == [(2, DeadlineExceeded)]


def test_calls_wait_for_an_absent_server_only_as_long_as_the_grace() -> None:
    calls = calls_with(connect_grace_s=0.5, connect_interval_s=0.1)
    calls.submit(call(1), 0.0)
    assert calls.disconnected(GONE, 0.01) == []
    due_s = calls.next_due_s()
    assert due_s is not None
    assert 0.05 <= due_s <= 0.17
    assert calls.tick(due_s) == [Connect()]
    assert failures(calls.disconnected(GONE, 0.52)) == [(1, Unavailable)]
    assert len(calls.calls) == 0


def test_after_the_grace_each_call_makes_one_attempt_and_fails_with_it() -> None:
    calls = calls_with(connect_grace_s=0.5)
    calls.submit(call(1), 0.0)
    calls.disconnected(GONE, 0.0)
    calls.tick(0.3)
    calls.disconnected(GONE, 0.6)
    assert calls.submit(call(2), 5.0) == [Connect()]
    assert failures(calls.disconnected(GONE, 5.001)) == [(2, Unavailable)]


def test_the_rate_of_attempts_to_connect_to_an_absent_server_is_limited() -> None:
    calls = calls_with(
        connect_grace_s=0.5, connect_interval_s=0.05, connect_interval_max_s=1.0, pending_limit=5000
    )
    attempts, failed, now_s = 0, 0, 0.0
    for number in range(10_000):  # a call each millisecond
        now_s = number / 1000
        actions = calls.submit(call(number, deadline_s=now_s + 60.0), now_s) + calls.tick(now_s)
        if Connect() in actions:
            attempts += 1
            actions += calls.disconnected(GONE, now_s)
        failed += len(failures(actions))
    assert 8 <= attempts <= 30
    assert failed + len(calls.calls) == 10_000
    assert len(calls.calls) <= 1500  # one interval's
    back_s = now_s + 1.5
    assert Connect() in calls.tick(back_s)
    assert calls.submit(call(10_000, deadline_s=back_s + 1.0), back_s) == []
    assert 10_000 in sends(calls.connected(back_s))


def test_the_rate_of_attempts_is_limited_for_a_server_that_closes_each_connection() -> None:
    calls = connected(connect_interval_s=0.1, connect_interval_max_s=1.0, backoff_s=1e-6, retry_burst=100)
    attempts, now_s = 0, 0.0
    calls.submit(call(1, deadline_s=60.0), now_s)
    for _ in range(10_000):
        now_s += 0.001
        actions = calls.tick(now_s) if not calls.up else calls.disconnected(GONE, now_s)
        if Connect() in actions:
            attempts += 1
            calls.connected(now_s)
            calls.submit(call(attempts + 1, deadline_s=60.0), now_s)
    assert 8 <= attempts <= 30


def test_a_server_that_returns_within_the_grace_answers_the_waiting_calls() -> None:
    calls = calls_with(connect_grace_s=0.5)
    calls.submit(call(1, idempotent=False), 0.0)
    calls.disconnected(GONE, 0.0)
    assert calls.tick(0.2) == [Connect()]
    assert sends(calls.connected(0.2)) == [1]


def test_a_refused_key_fails_all_waiting_calls_at_once() -> None:
    calls = calls_with()
    calls.submit(call(1), 0.0)
    calls.submit(call(2), 0.0)
    error = Unauthenticated("no")
    assert failures(calls.disconnected(error, 0.01)) == [(1, Unauthenticated), (2, Unauthenticated)]


def test_a_lost_connection_fails_calls_that_may_have_been_served() -> None:
    calls = connected()
    calls.submit(call(1, idempotent=False), 0.0)
    assert failures(calls.disconnected(GONE, 0.1)) == [(1, Unavailable)]


def test_a_lost_connection_repeats_idempotent_calls_on_the_next_one() -> None:
    calls = connected(backoff_s=0.05)
    calls.submit(call(1), 0.0)
    assert calls.disconnected(GONE, 0.1) == [Connect()]
    assert sends(calls.connected(0.11)) == []  # not before the jittered wait
    due_s = calls.next_due_s()
    assert due_s is not None
    assert sends(calls.tick(due_s)) == [1]


def test_a_call_is_not_repeated_beyond_its_attempts() -> None:
    calls = connected(max_attempts=2)
    calls.submit(call(1), 0.0)
    calls.disconnected(GONE, 0.1)
    assert sends(calls.connected(0.5)) == [1]
    assert failures(calls.disconnected(GONE, 0.6)) == [(1, Unavailable)]


def test_a_call_is_not_repeated_without_budget() -> None:
    calls = connected(retry_burst=1, retry_ratio=0.0)
    calls.submit(call(1), 0.0)
    calls.submit(call(2), 0.0)
    assert failures(calls.disconnected(GONE, 0.1)) == [(2, Unavailable)]


@given(st.lists(st.booleans(), max_size=100), st.floats(0.0, 1.0), st.floats(0.0, 20.0))
def test_retries_never_exceed_burst_plus_ratio_of_calls(
    losses: list[bool], ratio: float, burst: float
) -> None:
    calls = connected(retry_ratio=ratio, retry_burst=burst, max_attempts=1000, backoff_s=1e-6)
    made, retried, now_s = 1, 0, 0.0
    for number, lost in enumerate(losses):
        now_s += 1e-3
        if lost:
            calls.disconnected(GONE, now_s)
            calls.connected(now_s)
            retried += len(sends(calls.tick(now_s + 0.5e-3)))
        else:
            made += 1
            calls.submit(call(number), now_s)
    assert retried <= burst + ratio * made + 1e-6


def test_a_call_is_not_repeated_when_the_wait_would_outlast_it() -> None:
    calls = connected(backoff_s=1.0)
    calls.submit(call(1, deadline_s=0.5), 0.0)
    assert failures(calls.disconnected(GONE, 0.1)) == [(1, Unavailable)]


def test_a_call_without_room_is_sent_a_little_later_and_not_as_a_retry() -> None:
    calls = connected(max_attempts=1)
    (send,) = calls.submit(call(1), 0.0)
    assert isinstance(send, Send)
    calls.not_sent(send.call, 0.0)
    assert sends(calls.tick(0.001)) == []
    assert sends(calls.tick(0.02)) == [1]


def test_an_attempt_to_connect_that_takes_too_long_has_failed() -> None:
    calls = calls_with(connect_timeout_s=1.0, connect_grace_s=0.0)
    calls.submit(call(1), 0.0)
    assert calls.next_due_s() == 1.0
    assert failures(calls.tick(1.0)) == [(1, Unavailable)]


def test_unanswered_calls_are_bounded() -> None:
    calls = connected(pending_limit=1)
    calls.submit(call(1), 0.0)
    assert failures(calls.submit(call(2), 0.0)) == [(2, Overloaded)]
    assert len(calls.calls) == 1


def test_closing_ends_every_call() -> None:
    calls = connected()
    calls.submit(call(1), 0.0)
    calls.submit(call(2), 0.0)
    assert failures(calls.close(GONE)) == [(1, Unavailable), (2, Unavailable)]
    assert len(calls.calls) == 0


def test_deadlines_of_answered_calls_do_not_accumulate() -> None:
    calls = connected()
    for number in range(5000):
        calls.submit(call(number, deadline_s=1e6), 0.0)
        calls.answered(number)
    assert len(calls._deadlines) < 2000


EVENTS = ["submit", "submit", "connected", "refused", "rejected", "lost", "answer", "tick", "no room"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(EVENTS),
            st.floats(0.0, 1.0),
            st.booleans(),
            st.integers(0, 5),
            st.floats(0.0, 3.0),
        ),
        max_size=60,
    )
)
def test_every_call_ends_exactly_once_and_by_its_deadline_in_any_order_of_events(
    events: list[tuple[str, float, bool, int, float]],
) -> None:
    calls = calls_with(max_attempts=3, connect_timeout_s=1.0)
    now_s, submitted = 0.0, []
    ended: list[int] = []
    deadlines: dict[int, float] = {}
    state = "idle"

    def perform(actions: list[Any]) -> None:
        nonlocal state
        for action in actions:
            if isinstance(action, Connect):
                assert state == "idle"
                state = "connecting"
            elif isinstance(action, Send):
                assert state == "up"
                assert action.call.request_id not in ended
            else:
                ended.append(action.call.request_id)

    for event, wait_s, idempotent, pick, timeout_s in events:
        now_s += wait_s
        if (
            state == "connecting"
            and calls._connecting_until_s is not None
            and calls._connecting_until_s <= now_s
        ):
            state = "idle"  # the channel learns of it at its tick
            perform(calls.tick(now_s))
        if event == "submit":
            number = len(submitted) + 1
            submitted.append(number)
            deadlines[number] = now_s + timeout_s
            perform(calls.submit(call(number, deadline_s=now_s + timeout_s, idempotent=idempotent), now_s))
        elif event == "connected" and state == "connecting":
            state = "up"
            perform(calls.connected(now_s))
        elif event in {"refused", "rejected"} and state == "connecting":
            state = "idle"
            perform(calls.disconnected(GONE if event == "refused" else Unauthenticated("no"), now_s))
        elif event == "lost" and state == "up":
            state = "idle"
            perform(calls.disconnected(GONE, now_s))
        elif event == "answer" and state == "up" and submitted:
            number = submitted[pick % len(submitted)]
            if number not in calls._unsent and calls.answered(number) is not None:
                ended.append(number)
        else:
            perform(calls.tick(now_s))
        perform(calls.tick(now_s))
        assert not [n for n, deadline_s in deadlines.items() if deadline_s <= now_s and n not in ended]
        if calls.calls:
            due_s = calls.next_due_s()
            assert due_s is not None
            assert due_s <= min(deadlines[n] for n in submitted if n not in ended)
    perform(calls.close(GONE))
    assert sorted(ended) == submitted
