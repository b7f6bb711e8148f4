"""The cache as a library: threads, failing classifiers and approximations, changes during inferences."""

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from random import Random
from typing import Any

import numpy as np
import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import DeadlineExceeded, InvalidArgument
from nearsight.common.result_cache import approximate_key_cache
from nearsight.common.result_cache.approximate_key_cache import ApproximateKeyCache
from nearsight.common.result_cache.approximations import prefix
from nearsight.common.result_cache.budget import Budget
from nearsight.common.result_cache.image_keys import layout_keys
from support.pictures import picture
from support.waiting import LONG_S


class Classifier:
    """Returns the first element; counts calls, and can be paused or set to fail."""

    def __init__(self) -> None:
        self.calls = 0
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()
        self.go_on.set()
        self.error: Exception | None = None

    def __call__(self, x: list[float]) -> float:
        self.calls += 1
        self.begun.release()
        assert self.go_on.wait(LONG_S)
        if self.error is not None:
            raise self.error
        return x[0]


@pytest.fixture
def classifier() -> Classifier:
    return Classifier()


def test_inputs_with_the_same_key_share_a_result(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=3)
    assert [cache.lookup([1.0, noise]) for noise in (1.0, 2.0)] == [1.0, 1.0]
    assert (classifier.calls, cache.counts.served) == (1, 1)
    assert cache.lookup([2.0, 1.0]) == 2.0


def test_lookups_of_other_keys_do_not_wait(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=3)
    cache.lookup([2.0])
    classifier.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.lookup, [1.0])
        assert classifier.begun.acquire(timeout=LONG_S)
        assert cache.lookup([2.0]) == 2.0
        classifier.go_on.set()
        assert slow.result(LONG_S) == 1.0


def test_a_lookup_does_not_wait_for_ever_for_a_classifier_that_hangs(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, wait_s=0.01)
    classifier.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.lookup, [1.0])
        assert classifier.begun.acquire(timeout=LONG_S)
        with pytest.raises(DeadlineExceeded, match="another lookup of this key"):
            cache.lookup([1.0])
        classifier.go_on.set()
        assert slow.result(LONG_S) == 1.0


def test_an_error_of_the_classifier_reaches_the_caller_and_is_not_cached(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier)
    classifier.error = TimeoutError("no answer")
    with pytest.raises(TimeoutError, match="no answer"):
        cache.lookup([1.0])
    classifier.error = None
    assert cache.lookup([1.0]) == 1.0


def test_an_error_reaches_all_waiting_lookups_of_the_key(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier)
    classifier.error = TimeoutError("no answer")
    classifier.go_on.clear()
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(cache.lookup, [1.0]) for _ in range(4)]
        assert classifier.begun.acquire(timeout=LONG_S)
        classifier.go_on.set()
        assert all(isinstance(future.exception(LONG_S), TimeoutError) for future in futures)


def test_a_failed_verification_leaves_the_result_to_be_verified(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=2)
    cache.lookup([1.0])
    classifier.error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        cache.lookup([1.0])
    classifier.error = None
    assert cache.lookup([1.0]) == 1.0
    assert (cache.counts.verifying, cache.counts.corrections) == (2, 0)


def test_a_classifier_that_contradicts_itself_runs_for_each_lookup() -> None:
    answers = iter(range(100))
    cache = ApproximateKeyCache(prefix(1), lambda _: next(answers), beta=1.5)
    assert [cache.lookup([1.0]) for _ in range(10)] == [*range(10)]
    assert cache.counts.corrections == 9


@pytest.mark.parametrize(
    "change", [lambda cache: cache.invalidate(), lambda cache: cache.correct([1.0], 5.0)]
)
def test_an_inference_that_began_before_a_change_is_not_cached(
    classifier: Classifier, change: Callable[[ApproximateKeyCache[list[float], float]], object]
) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=3)
    classifier.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.lookup, [1.0, 1.0])
        assert classifier.begun.acquire(timeout=LONG_S)
        change(cache)
        classifier.go_on.set()
        assert slow.result(LONG_S) == 1.0
    missed = cache.counts.missed
    value = cache.lookup([1.0, 2.0])
    assert value == 5.0 or cache.counts.missed == missed + 1


def test_results_are_invalidated_by_value(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=3)
    for value in (1.0, 2.0):
        cache.lookup([value])
    assert cache.invalidate(lambda value: value == 2.0) == 1
    cache.lookup([1.0])
    assert cache.counts.served == 1


def test_results_expire(classifier: Classifier) -> None:
    clock = ManualClock()
    cache = ApproximateKeyCache(prefix(1), classifier, beta=3, ttl_s=10, clock=clock)
    cache.lookup([1.0])
    clock.advance(10)
    cache.lookup([1.0])
    assert classifier.calls == 2


def test_an_approximation_without_hashable_keys_is_refused(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(lambda x: x[:1], classifier)
    with pytest.raises(InvalidArgument, match="not hashable: list; return bytes"):
        cache.lookup([1.0])
    assert classifier.calls == 0


@pytest.mark.parametrize("change", [lambda cache, x: cache.lookup(x), lambda cache, x: cache.correct(x, 1.0)])
@pytest.mark.parametrize("x", [[], [np.nan, 1.0], [[1.0]]])
def test_an_input_without_a_key_is_neither_classified_nor_cached(
    classifier: Classifier, x: list[float], change: Callable[..., object]
) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier)
    with pytest.raises(InvalidArgument):
        change(cache, x)
    assert (classifier.calls, cache.counts.lookups, cache.invalidate()) == (0, 0, 0)


def test_errors_are_estimated_from_verifications() -> None:
    rng = np.random.default_rng(5)
    cache: ApproximateKeyCache[np.ndarray, int] = ApproximateKeyCache(
        prefix(1), lambda x: int(x[1] > 0.7), beta=1.4
    )
    inputs = np.column_stack([rng.integers(0, 20, 20_000), rng.random(20_000)])
    wrong = sum(cache.lookup(x) != int(x[1] > 0.7) for x in inputs)
    assert cache.wrong_share == pytest.approx(wrong / cache.counts.served, abs=0.05)
    assert wrong / cache.counts.served < cache.wrong_share_bound


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released by each lookup that begins to wait for another thread."""
    began = threading.Semaphore(0)

    def announced(*call: Any) -> object:
        began.release()
        return wait(*call)

    monkeypatch.setattr(approximate_key_cache, "wait", announced)
    return began


def test_lookups_that_wait_for_one_inference_are_one_inference(
    classifier: Classifier, waiting: threading.Semaphore
) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=math.inf)
    classifier.go_on.clear()
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(cache.lookup, [1.0, float(number)]) for number in range(8)]
        assert all(waiting.acquire(timeout=LONG_S) for _ in range(7))
        classifier.go_on.set()
        assert [answer.result(LONG_S) for answer in answers] == [1.0] * 8
    assert (classifier.calls, cache.counts.missed, cache.counts.served) == (1, 1, 7)


@pytest.mark.parametrize("control", [{"beta": 1}, {"beta": 1.5}, {"budget": Budget(error=0.01)}])
def test_lookups_that_wait_for_an_inference_are_verified_like_later_ones(
    waiting: threading.Semaphore, control: dict[str, Any]
) -> None:
    go_on = threading.Event()

    def classify(x: list[float]) -> float:
        assert go_on.wait(LONG_S)
        return x[1]

    cache = ApproximateKeyCache(prefix(1), classify, rng=Random(1), **control)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(cache.lookup, [1.0, truth]) for truth in (5.0, 6.0)]
        assert waiting.acquire(timeout=LONG_S)
        go_on.set()
        assert [answer.result(LONG_S) for answer in answers] == [5.0, 6.0]
    assert cache.counts.lookups == 2


def test_a_lookup_that_waits_does_not_get_a_result_that_was_invalidated_meanwhile(
    classifier: Classifier, waiting: threading.Semaphore
) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=math.inf)
    classifier.go_on.clear()
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(cache.lookup, [1.0]) for _ in range(2)]
        assert waiting.acquire(timeout=LONG_S)
        cache.invalidate()
        classifier.go_on.set()
        assert [answer.result(LONG_S) for answer in answers] == [1.0, 1.0]
    assert classifier.calls == 2


def test_a_key_whose_classifier_hangs_is_free_after_an_invalidation(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=3)
    classifier.go_on.clear()
    with ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(cache.lookup, [1.0])
        assert classifier.begun.acquire(timeout=LONG_S)
        cache.invalidate()
        other = pool.submit(cache.lookup, [1.0])
        assert classifier.begun.acquire(timeout=LONG_S), "the classifier runs again"
        classifier.go_on.set()
        assert (hanging.result(LONG_S), other.result(LONG_S)) == (1.0, 1.0)


def test_a_classifier_that_looks_up_its_own_input_fails_after_the_timeout() -> None:
    def classify(x: list[float]) -> float:
        return cache.lookup(x)

    cache = ApproximateKeyCache(prefix(1), classify, wait_s=0.01)
    with pytest.raises(DeadlineExceeded):
        cache.lookup([1.0])
    assert cache.invalidate() == 0


@pytest.mark.parametrize("waiters", [0, 3])
def test_results_that_cannot_be_compared_are_refused_for_all_waiting_lookups(
    waiters: int, waiting: threading.Semaphore
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    go_on.set()

    def classify(_: list[float]) -> np.ndarray:
        begun.set()
        assert go_on.wait(LONG_S)
        return np.array([1, 2])

    cache = ApproximateKeyCache(prefix(1), classify, beta=1)
    cache.lookup([1.0])
    begun.clear()
    go_on.clear()
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(cache.lookup, [1.0]) for _ in range(1 + waiters)]
        assert all(waiting.acquire(timeout=LONG_S) for _ in range(waiters))
        go_on.set()
        for future in futures:
            with pytest.raises(InvalidArgument, match="compared with =="):
                future.result(LONG_S)


def test_a_result_that_is_unequal_to_itself_is_never_served() -> None:
    cache: ApproximateKeyCache[list[float], float] = ApproximateKeyCache(
        prefix(1), lambda _: np.nan, beta=1.5
    )
    assert all(np.isnan(cache.lookup([1.0])) for _ in range(10))
    assert (cache.counts.served, cache.counts.corrections) == (0, 9)


def test_none_is_a_valid_result(classifier: Classifier) -> None:
    calls: list[object] = []
    cache: ApproximateKeyCache[list[float], None] = ApproximateKeyCache(prefix(1), calls.append, beta=3)
    assert [cache.lookup([1.0]) for _ in range(3)] == [None] * 3
    assert (len(calls), cache.counts.served) == (2, 1)


def test_an_error_of_an_approximation_reaches_the_caller(classifier: Classifier) -> None:
    def broken(_: list[float]) -> bytes:
        raise ZeroDivisionError("no scale")

    with pytest.raises(ZeroDivisionError, match="no scale"):
        ApproximateKeyCache(broken, classifier).lookup([1.0])
    assert classifier.calls == 0


def test_a_cache_takes_either_a_back_off_or_a_budget(classifier: Classifier) -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        ApproximateKeyCache(prefix(1), classifier, beta=2, budget=Budget(error=0.01))
    for approximations in ((), (prefix(1), prefix(2))):
        with pytest.raises(InvalidArgument, match="require a budget"):
            ApproximateKeyCache(approximations, classifier, beta=2)


def test_inputs_are_distinguished_if_their_coarse_key_is_not_sufficient(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(
        (prefix(1), prefix(2)), lambda x: x[0] * x[1], budget=Budget(error=0.01), rng=Random(1)
    )
    rng = np.random.default_rng(1)
    for kind, detail, noise in rng.integers(0, (2, 4, 1_000), (4_000, 3)).tolist():
        cache.lookup([kind, detail, noise])
    assert cache.counts.served > 3_500
    assert cache.wrong_share_bound < 0.05
    assert [cache.lookup([1, detail, -1]) for detail in range(4)] == [0, 1, 2, 3]
    assert not cache.alarm


def test_the_alarm_is_set_after_a_change_of_the_classes_and_few_answers_are_wrong() -> None:
    label = ["old"]
    cache = ApproximateKeyCache(prefix(1), lambda _: label[0], budget=Budget(error=0.01), rng=Random(1))

    def ask(lookups: int) -> tuple[list[bool], int]:
        sounded, wrong = [], 0
        for turn in range(lookups):
            wrong += cache.lookup([float(turn % 500), 1.0]) != label[0]
            sounded.append(cache.alarm)
        return sounded, wrong

    sounded, _ = ask(10_000)
    assert not any(sounded)
    label[0] = "new"
    sounded, wrong = ask(60_000)
    assert any(sounded[:2_000])
    assert not sounded[-1]
    assert wrong < 2_000


def _photo(shift: int) -> np.ndarray:
    return np.roll(picture(1, side=320), shift, axis=1)


def test_a_photo_that_moved_a_little_has_the_result_of_the_photo_before() -> None:
    classified: list[int] = []

    def classify(photo: np.ndarray) -> str:
        classified.append(len(photo))
        return "picture"

    cache = ApproximateKeyCache(layout_keys(), classify, beta=math.inf)
    assert {cache.lookup(_photo(shift)) for shift in range(6)} == {"picture"}
    assert len(classified) == 1
    assert cache.counts.served == 5


def test_a_photo_without_a_key_is_classified_each_time() -> None:
    cache = ApproximateKeyCache(layout_keys(), len, beta=math.inf)
    assert [cache.lookup(np.zeros((side, 9), np.uint8)) for side in (7, 8)] == [7, 8]
    cache.correct(np.zeros((7, 9), np.uint8), 3)
    assert cache.lookup(np.zeros((7, 9), np.uint8)) == 7
    assert cache.counts.lookups == 0


def test_a_correction_holds_for_all_keys_of_a_photo() -> None:
    cache = ApproximateKeyCache(layout_keys(), lambda _photo: "guess", beta=math.inf)
    cache.lookup(_photo(0))
    cache.correct(_photo(1), "truth")
    assert cache.lookup(_photo(2)) == "truth"
