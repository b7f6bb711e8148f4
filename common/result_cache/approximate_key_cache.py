"""A cache in front of any classifier, for applications: `ApproximateKeyCache`."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, wait
from random import Random, SystemRandom
from typing import Generic, TypeVar

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import DeadlineExceeded, InvalidArgument
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.common.result_cache.budget import Budget, SequentialTest
from nearsight.common.result_cache.image_keys import Alternatives, PhotoKeys
from nearsight.common.result_cache.result_cache import Counts, Refresh, ResultCache
from nearsight.common.result_cache.selection import Candidates, Choice, Selection

X = TypeVar("X")
Y = TypeVar("Y")
_ALTERNATIVES = 8
"""Keys stored per result, if inputs have several keys."""


class ApproximateKeyCache(Generic[X, Y]):
    """Returns the results of a classifier, mostly without running it.

    Parameters
    ----------
    approx : callable, or sequence of them, or Candidates
        Computes the key of an input, such as ``prefix(10)`` of `approximations`. Any function with a hashable
        result is possible. Inputs with the same key should mostly have the same class. With a sequence of
        functions, from coarse to fine, a finer one is used if results of the coarser key conflict; this
        requires a budget. `PhotoKeys`, such as ``layout_keys()`` of `image_keys`, compute several keys, of
        which a single known one suffices; a photo without keys is classified and not cached. Of `Candidates`,
        the cache chooses the ones that serve the most lookups within the budget.
    classify : callable
        The classifier, whose results count as correct. Results are compared with ``==``.
    beta : float, optional
        Back-off of auto-refresh. A smaller value gives fewer errors and more inferences; 1 verifies every
        lookup, ``inf`` none. By default 1.5.
    budget : Budget, optional
        Replaces the back-off. In the long run, with ``Budget(error=0.01)`` at most 1 % of the answers are
        wrong, and with ``Budget(inferences=0.2)`` the classifier runs for 20 % of the lookups.
    size : int
        Maximum number of results.
    ttl_s : float
        Time after which a result that was not confirmed is deleted [s].
    wait_s : float
        Timeout of a lookup that waits for inferences for the same key in other threads [s].
    rng : random.Random, optional
        Selects the served lookups that are verified under a budget. The default is unpredictable; a seeded
        generator makes a run repeatable.
    clock : Clock, optional

    Examples
    --------
    >>> from nearsight.common.result_cache.approximations import prefix
    >>> cache = ApproximateKeyCache(prefix(2), classify=sum, beta=2)
    >>> cache.lookup([1.0, 2.0, 3.0]), cache.lookup([1.0, 2.0, 4.0]), cache.lookup([1.0, 2.0, 5.0])
    (6.0, 7.0, 8.0)

    Notes
    -----
    Source: approximate-key caching, algorithm 1 with equation 6. Thread-safe. The classifier runs in the
    calling thread, for one lookup per key at a time. Other lookups of the key wait, and are then served or
    verified as if they came later. So threads do not change the share of wrong answers. Nothing is written to
    disk.

    Raises
    ------
    InvalidArgument
        If both a budget and a back-off are given, or several approximations without a budget.
    """

    def __init__(  # noqa: PLR0913  applications set everything here, by keyword
        self,
        approx: Callable[[X], Hashable] | Sequence[Callable[[X], Hashable]] | Candidates[X],
        classify: Callable[[X], Y],
        *,
        beta: float | None = None,
        budget: Budget | None = None,
        size: int = 10_000,
        ttl_s: float = math.inf,
        wait_s: float = 30.0,
        rng: Random | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if isinstance(approx, Candidates):
            self._approx = approx.functions
        else:
            self._approx = (approx,) if callable(approx) else tuple(approx)
        needs_budget = len(self._approx) > 1 or isinstance(approx, Candidates)
        if budget is not None and beta is not None:
            raise InvalidArgument("a cache takes a back-off or a budget, not both")
        if not self._approx or (needs_budget and budget is None):
            raise InvalidArgument("a cache takes one approximation; several, or candidates, require a budget")
        refresh: Refresh = AutoRefresh(1.5 if beta is None else beta)
        self._selection: Selection[Y] | None = None
        if budget is not None:
            refresh = SequentialTest(budget, rng or SystemRandom())
            if isinstance(approx, Candidates):
                self._selection = Selection(approx, budget, size, ttl_s)
        self._most_wrong = budget.most_wrong if budget is not None else 1.0
        self._classify = classify
        self._alternatives = Alternatives(_ALTERNATIVES * size)
        self._cache: ResultCache[Hashable, Y] = ResultCache(refresh, size, ttl_s=ttl_s)
        self._wait_s = wait_s
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Y]] = {}
        """By key; corrections and invalidations remove all, so that earlier inferences are not cached."""

    def lookup(self, x: X) -> Y:
        """The class of this input, from the cache or from the classifier.

        Raises
        ------
        InvalidArgument
            If the input has no hashable key, or if the results cannot be compared, such as arrays.
        DeadlineExceeded
            If other threads have been running the classifier for this key for ``wait_s`` seconds.
        Exception
            Any error of the classifier; nothing is cached then.
        """
        keys = self._keys(x)
        if not all(keys):
            return self._classify(x)
        ends_s = self._clock.monotonic() + self._wait_s
        while True:
            with self._lock:
                now_s = self._clock.monotonic()
                path = self._path(keys, now_s)
                key = path[-1]
                inference = self._running.get(key)
                first = inference is None
                if inference is None:
                    entry = self._cache.find(key, now_s)
                    if entry is not None:
                        value = entry.value
                        self._report(keys, value, 0, now_s)
                        return value
                    inference = self._running[key] = Future()
            if first:
                return self._infer(keys, path, x, inference)
            self._wait_for(inference, ends_s - now_s)

    def correct(self, x: X, value: Y) -> None:
        """Set the result of this input to ``value``, which is known to be correct (e.g. from the user)."""
        keys = self._keys(x)
        with self._lock:
            self._running.clear()
            now_s = self._clock.monotonic()
            if all(keys):
                self._cache.correct(self._path(keys, now_s)[-1], value, now_s)
                if self._selection is not None:
                    self._selection.forget([key for (key,) in keys])

    def invalidate(self, stale: Callable[[Y], bool] = lambda _: True) -> int:
        """Delete the results for which ``stale`` returns True, by default all; returns their number.

        The result of an inference in progress is returned but not cached, and not used for waiting lookups.
        """
        with self._lock:
            self._running.clear()
            if self._selection is not None:
                self._selection.invalidate(stale)
            return self._cache.invalidate(stale)

    @property
    def counts(self) -> Counts:
        """Number of lookups so far by outcome."""
        return self._cache.counts

    @property
    def choice(self) -> Choice | None:
        """The chosen one of the `Candidates`, with estimates for all; None without candidates."""
        return None if self._selection is None else self._selection.choice

    @property
    def wrong_share(self) -> float:
        """Estimated share of the served lookups that were wrong, from verifications."""
        return self._cache.wrong_hits.share

    @property
    def wrong_share_bound(self) -> float:
        """Upper bound of `wrong_share` with 97.5 % confidence."""
        return self._cache.wrong_hits.bound

    @property
    def alarm(self) -> bool:
        """Whether recently clearly more lookups were answered wrongly than a budget of errors allows."""
        return self._cache.recent_errors.exceeds(self._most_wrong)

    def _keys(self, x: X) -> list[tuple[Hashable, ...]]:
        """The alternative keys by function; keys of different functions never compare equal."""
        found: list[tuple[Hashable, ...]] = []
        for number, approx in enumerate(self._approx):
            key = approx(x)
            try:
                hash(key)
            except TypeError:
                raise InvalidArgument(
                    f"the approximation returned a key that is not hashable: {type(key).__name__}",
                    advice="return bytes, a string, a number or a tuple of these",
                ) from None
            keys = key if isinstance(approx, PhotoKeys) and isinstance(key, tuple) else (key,)
            found.append(keys if len(self._approx) == 1 else tuple((number, one) for one in keys))
        return found

    def _path(self, keys: Sequence[tuple[Hashable, ...]], now_s: float) -> list[Hashable]:
        if len(keys) == len(keys[0]) == 1:
            return [keys[0][0]]
        if self._selection is not None:
            keys = self._selection.levels(keys)
        return self._cache.path(map(self._alternatives.resolve, keys), now_s)

    def _infer(
        self, keys: Sequence[tuple[Hashable, ...]], path: Sequence[Hashable], x: X, inference: Future[Y]
    ) -> Y:
        try:
            value = self._classify(x)
            with self._lock:
                if self._ended(path[-1], inference):
                    self._learn(keys, path, value)
        except BaseException as error:
            with self._lock:
                self._ended(path[-1], inference)
            inference.set_exception(error)
            raise
        inference.set_result(value)
        return value

    def _learn(self, keys: Sequence[tuple[Hashable, ...]], path: Sequence[Hashable], value: Y) -> None:
        for alternatives, key in zip(keys, path, strict=False):  # finer keys were not looked up
            if len(alternatives) > 1:
                self._alternatives.join(alternatives, key)
        now_s = self._clock.monotonic()
        try:
            lookups = self._cache.learn(path[-1], value, now_s, path[:-1])
            self._report(keys, value, lookups, now_s)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"results are compared with ==, which failed for {type(value).__name__}: {error}",
                advice="let the classifier return a label, a number, a string or a tuple of these",
            ) from error

    def _report(self, keys: Sequence[tuple[Hashable, ...]], value: Y, lookups: int, now_s: float) -> None:
        """Report a lookup to the selection, if any; an inference represents ``lookups`` lookups."""
        if self._selection is not None and self._selection.note(
            [key for (key,) in keys], value, lookups, now_s
        ):
            self._cache.adopt(self._selection.entries())

    def _wait_for(self, inference: Future[Y], left_s: float) -> None:
        """Wait for another thread's inference; raises its error."""
        if not wait([inference], min(max(0.0, left_s), threading.TIMEOUT_MAX)).done:
            raise DeadlineExceeded(
                f"the classifier has not answered another lookup of this key within {self._wait_s:g} s"
            )
        inference.result()

    def _ended(self, key: Hashable, inference: Future[Y]) -> bool:
        """Remove an inference; False if it was already removed."""
        running = self._running.get(key) is inference
        if running:
            del self._running[key]
        return running
