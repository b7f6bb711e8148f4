"""A cache in front of a classifier, for any application: `ApproximateKeyCache`."""

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
from nearsight.common.result_cache.result_cache import Counts, ResultCache
from nearsight.common.result_cache.selection import Candidates, Choice, Selection

X = TypeVar("X")
Y = TypeVar("Y")
_ALTERNATIVES = 8
"""Keys that are remembered for each result, where inputs have several."""


class ApproximateKeyCache(Generic[X, Y]):
    """Answers like a classifier, mostly without running it.

    Parameters
    ----------
    approx : callable, or sequence of them, or Candidates
        Gives the key of an input, such as ``prefix(10)`` of `approximations` beside this; any function
        with a hashable value will do. Inputs with the same key should mostly have the same class. Of several,
        coarse to fine, a finer one is used where results of the coarser key conflict; this takes a budget.
        `PhotoKeys`, such as ``layout_keys()`` of `image_keys`, give several keys, and one that is known is
        enough; a photo without any is classified and not cached. Of `Candidates`, those are used that serve
        most within the budget.
    classify : callable
        The classifier, which is taken to be right. Results are compared with ``==``.
    beta : float, optional
        Back-off of auto-refresh: smaller means fewer errors and more inferences; 1 verifies every lookup,
        ``inf`` none. By default 1.5.
    budget : Budget, optional
        Instead of a back-off: with ``Budget(error=0.01)`` at most 1 % of the answers are wrong, with
        ``Budget(inferences=0.2)`` the classifier runs for 20 % of the lookups, both in the long run.
    size : int
        Largest number of results that are kept.
    ttl_s : float
        A result that was not confirmed for so long is forgotten.
    wait_s : float
        How long a lookup waits for an inference that another thread runs for the same key.
    rng : random.Random, optional
        Draws which served lookups are verified under a budget. By default nobody can foresee it; with a
        seeded one a run can be repeated.
    clock : Clock, optional

    Examples
    --------
    >>> from nearsight.common.result_cache.approximations import prefix
    >>> cache = ApproximateKeyCache(prefix(2), classify=sum, beta=2)
    >>> cache.lookup([1.0, 2.0, 3.0]), cache.lookup([1.0, 2.0, 4.0]), cache.lookup([1.0, 2.0, 5.0])
    (6.0, 7.0, 8.0)

    Notes
    -----
    Source: approximate-key caching, algorithm 1 with equation 6. Thread-safe; the classifier runs in the
    calling thread, for one lookup per key at a time. Nothing is written to disk.

    Raises
    ------
    InvalidArgument
        If there is a budget as well as a back-off, or several approximations without a budget.
    """

    def __init__(  # noqa: PLR0913  the one place where an application sets everything, by name
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
        candidates = approx if isinstance(approx, Candidates) else None
        if isinstance(approx, Candidates):
            self._approx = approx.functions
        else:
            self._approx = (approx,) if callable(approx) else tuple(approx)
        if budget is not None and beta is not None:
            raise InvalidArgument("a cache follows a back-off or a budget, not both")
        if not self._approx or (budget is None and (len(self._approx) > 1 or candidates is not None)):
            raise InvalidArgument("a cache has one approximation; several, or candidates, take a budget")
        self._classify = classify
        self._alternatives = Alternatives(_ALTERNATIVES * size)
        refresh = (
            SequentialTest(budget, rng or SystemRandom())
            if budget is not None
            else AutoRefresh(1.5 if beta is None else beta)
        )
        self._most_wrong = budget.most_wrong if budget is not None else 1.0
        self._cache: ResultCache[Hashable, Y] = ResultCache(refresh, size, ttl_s=ttl_s)
        self._selection = (
            Selection[Y](candidates, budget, size, ttl_s)
            if budget is not None and candidates is not None
            else None
        )
        self._wait_s = wait_s
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[Hashable, Future[Y]] = {}
        self._changes = 0
        """How often results were corrected or invalidated; an inference that began before is not kept."""

    def lookup(self, x: X) -> Y:
        """The class of this input, from the cache or from the classifier.

        Raises
        ------
        InvalidArgument
            If the input has no hashable key.
            Or if it has a result that cannot be compared with the one before, such as an array.
        DeadlineExceeded
            If another thread has been running the classifier for this key for ``wait_s`` seconds.
        Exception
            What the classifier raises; nothing is cached then.
        """
        keys = self._keys(x)
        if not all(keys):
            return self._classify(x)
        with self._lock:
            now_s = self._clock.monotonic()
            path = self._path(keys, now_s)
            key = path[-1]
            entry = self._cache.find(key, now_s)
            if entry is not None:
                value = entry.value
                self._told(keys, value, 0, now_s)
                return value
            mine = key not in self._running
            inference = self._running.setdefault(key, Future())
            changes = self._changes
        return self._infer(keys, path, x, inference, changes) if mine else self._result_of(inference)

    def correct(self, x: X, value: Y) -> None:
        """Somebody who knows, such as the user, says what this input is."""
        keys = self._keys(x)
        with self._lock:
            self._forget_inferences()
            now_s = self._clock.monotonic()
            if all(keys):
                self._cache.correct(self._path(keys, now_s)[-1], value, now_s)
                if self._selection is not None:
                    self._selection.forget([key for (key,) in keys])

    def invalidate(self, stale: Callable[[Y], bool] = lambda _: True) -> int:
        """Forget the results for which ``stale`` holds, by default all; gives how many.

        A result of an inference that began before is given to those who wait for it, but it is not kept.
        """
        with self._lock:
            self._forget_inferences()
            if self._selection is not None:
                self._selection.invalidate(stale)
            return self._cache.invalidate(lambda _, value: stale(value))

    @property
    def counts(self) -> Counts:
        """What became of the lookups so far."""
        return self._cache.counts

    @property
    def choice(self) -> Choice | None:
        """Which of the `Candidates` makes the keys, since when, and what each would do; None without any."""
        return None if self._selection is None else self._selection.choice

    @property
    def wrong_share(self) -> float:
        """Share of the served lookups that were wrong, estimated from verifications."""
        return self._cache.wrong_hits.share

    @property
    def wrong_share_bound(self) -> float:
        """`wrong_share` is not larger than this with 97.5 % confidence."""
        return self._cache.wrong_hits.bound

    @property
    def alarm(self) -> bool:
        """Whether lately clearly more lookups were answered wrongly than a budget of errors allows."""
        return self._cache.recent_errors.exceeds(self._most_wrong)

    def _keys(self, x: X) -> list[tuple[Hashable, ...]]:
        """By each function, with its alternatives. Equal keys of two approximations are told apart."""
        found: list[tuple[Hashable, ...]] = []
        for number, approx in enumerate(self._approx):
            key = approx(x)
            try:
                hash(key)
            except TypeError:
                raise InvalidArgument(
                    f"the approximation gave a key that is not hashable: {type(key).__name__}",
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
        self,
        keys: Sequence[tuple[Hashable, ...]],
        path: Sequence[Hashable],
        x: X,
        inference: Future[Y],
        changes: int,
    ) -> Y:
        key = path[-1]
        try:
            value = self._classify(x)
            with self._lock:
                self._end(key, inference)
                if changes == self._changes:
                    self._learn(keys, path, value)
        except BaseException as error:
            with self._lock:
                self._end(key, inference)
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
            self._told(keys, value, lookups, now_s)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"results are compared with ==, which failed for {type(value).__name__}: {error}",
                advice="let the classifier give a label, a number, a string or a tuple of these",
            ) from error

    def _told(self, keys: Sequence[tuple[Hashable, ...]], value: Y, lookups: int, now_s: float) -> None:
        """The selection, if there is one, of a lookup; an inference tells about so many."""
        if self._selection is not None and self._selection.note(
            [key for (key,) in keys], value, lookups, now_s
        ):
            self._cache.adopt(self._selection.holds())

    def _result_of(self, inference: Future[Y]) -> Y:
        """What another thread's inference gives."""
        if not wait([inference], self._wait_s).done:
            raise DeadlineExceeded(
                f"the classifier has not answered another lookup of this key within {self._wait_s:g} s"
            )
        return inference.result()

    def _forget_inferences(self) -> None:
        self._changes += 1
        self._running.clear()

    def _end(self, key: Hashable, inference: Future[Y]) -> None:
        if self._running.get(key) is inference:
            del self._running[key]
