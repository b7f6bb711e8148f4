"""The cache as a library: threads, faulty classifiers and approximations, changes while inferences run."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import DeadlineExceeded, InvalidArgument
from nearsight.common.result_cache.approximate_key_cache import ApproximateKeyCache
from nearsight.common.result_cache.approximations import prefix


class Classifier:
    """Tells the first element; counts, and waits where it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()
        self.go_on.set()
        self.error: Exception | None = None

    def __call__(self, x: list[float]) -> float:
        self.calls += 1
        self.begun.release()
        assert self.go_on.wait(20)
        if self.error is not None:
            raise self.error
        return x[0]


@pytest.fixture
def classifier() -> Classifier:
    return Classifier()


def test_inputs_with_one_key_share_a_result(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=3)
    assert [cache.lookup([1.0, noise]) for noise in (1.0, 2.0)] == [1.0, 1.0]
    assert (classifier.calls, cache.counts.served) == (1, 1)
    assert cache.lookup([2.0, 1.0]) == 2.0


def test_concurrent_lookups_of_one_key_run_the_classifier_once(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier)
    classifier.go_on.clear()
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(cache.lookup, [1.0]) for _ in range(8)]
        assert classifier.begun.acquire(timeout=10)
        classifier.go_on.set()
        assert [future.result(10) for future in futures] == [1.0] * 8
    assert classifier.calls + cache.counts.served <= 8
    assert classifier.calls <= 1 + cache.counts.verifying


def test_lookups_of_other_keys_do_not_wait(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=3)
    cache.lookup([2.0])
    classifier.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.lookup, [1.0])
        assert classifier.begun.acquire(timeout=10)
        assert cache.lookup([2.0]) == 2.0
        classifier.go_on.set()
        assert slow.result(10) == 1.0


def test_a_classifier_that_hangs_does_not_hold_others_for_ever(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, wait_s=0.01)
    classifier.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.lookup, [1.0])
        assert classifier.begun.acquire(timeout=10)
        with pytest.raises(DeadlineExceeded, match="another lookup of this key"):
            cache.lookup([1.0])
        classifier.go_on.set()
        assert slow.result(10) == 1.0


def test_an_error_of_the_classifier_reaches_its_callers_and_is_not_kept(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier)
    classifier.error = TimeoutError("no answer")
    with pytest.raises(TimeoutError, match="no answer"):
        cache.lookup([1.0])
    classifier.error = None
    assert cache.lookup([1.0]) == 1.0


def test_an_error_reaches_those_who_wait_for_the_same_key(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier)
    classifier.error = TimeoutError("no answer")
    classifier.go_on.clear()
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(cache.lookup, [1.0]) for _ in range(4)]
        assert classifier.begun.acquire(timeout=10)
        classifier.go_on.set()
        assert all(isinstance(future.exception(10), TimeoutError) for future in futures)


def test_a_failed_verification_leaves_the_result_to_be_verified(classifier: Classifier) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=2)
    cache.lookup([1.0])
    classifier.error = ValueError("broken")
    with pytest.raises(ValueError, match="broken"):
        cache.lookup([1.0])
    classifier.error = None
    assert cache.lookup([1.0]) == 1.0
    assert (cache.counts.verifying, cache.counts.corrections) == (2, 0)


def test_a_classifier_that_contradicts_itself_is_asked_each_time() -> None:
    answers = iter(range(100))
    cache = ApproximateKeyCache(prefix(1), lambda _: next(answers), beta=1.5)
    assert [cache.lookup([1.0]) for _ in range(10)] == [*range(10)]
    assert cache.counts.corrections == 9


@pytest.mark.parametrize(
    "change", [lambda cache: cache.invalidate(), lambda cache: cache.correct([1.0], 5.0)]
)
def test_an_inference_that_began_before_a_change_is_not_kept(
    classifier: Classifier, change: Callable[[ApproximateKeyCache[list[float], float]], object]
) -> None:
    cache = ApproximateKeyCache(prefix(1), classifier, beta=3)
    classifier.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(cache.lookup, [1.0, 1.0])
        assert classifier.begun.acquire(timeout=10)
        change(cache)
        classifier.go_on.set()
        assert slow.result(10) == 1.0
    missed = cache.counts.missed
    value = cache.lookup([1.0, 2.0])
    assert value == 5.0 or cache.counts.missed == missed + 1


def test_results_are_forgotten_by_value(classifier: Classifier) -> None:
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


def test_an_input_without_key_is_not_classified(classifier: Classifier) -> None:
    with pytest.raises(InvalidArgument):
        ApproximateKeyCache(prefix(1), classifier).lookup([])
    assert classifier.calls == 0


def test_errors_are_estimated_from_verifications() -> None:
    rng = np.random.default_rng(5)
    cache: ApproximateKeyCache[np.ndarray, int] = ApproximateKeyCache(
        prefix(1), lambda x: int(x[1] > 0.7), beta=1.4
    )
    inputs = np.column_stack([rng.integers(0, 20, 20_000), rng.random(20_000)])
    wrong = sum(cache.lookup(x) != int(x[1] > 0.7) for x in inputs)
    assert cache.wrong_share == pytest.approx(wrong / cache.counts.served, abs=0.05)
    assert wrong / cache.counts.served < cache.wrong_share_bound
