"""Registry of all policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from nearsight.common.errors import ConfigurationError
from nearsight.common.model_cache.forecast import RateForecast
from nearsight.common.model_cache.policies.arc import AdaptiveReplacement
from nearsight.common.model_cache.policies.belady_min import BeladyMin
from nearsight.common.model_cache.policies.cremebrulee import CremeBrulee
from nearsight.common.model_cache.policies.cremebrulee_oracle import CremeBruleeOracle
from nearsight.common.model_cache.policies.forecast import Forecast
from nearsight.common.model_cache.policies.gdsf import GreedyDualSizeFrequency
from nearsight.common.model_cache.policies.iam import (
    REBUILD_S,
    ExponentialAverage,
    ImportanceAware,
    SlidingWindow,
    TrueRates,
)
from nearsight.common.model_cache.policies.lfu import LeastFrequentlyUsed
from nearsight.common.model_cache.policies.lru import LeastRecentlyUsed
from nearsight.common.model_cache.policies.popularity import Popularity
from nearsight.common.model_cache.policies.random_choice import RandomChoice
from nearsight.common.model_cache.policies.srrip import StaticReReference
from nearsight.common.model_cache.policy import Knowledge, Policy

_Make = Callable[[Knowledge], Policy]


def _iam(estimator: type[SlidingWindow | ExponentialAverage]) -> _Make:
    """IAM with the rates of the last ``window_s``. Its queue is rebuilt at least twice in this time."""
    return lambda known: ImportanceAware(estimator(known.window_s), min(REBUILD_S, known.window_s / 2))


_SERVING: Mapping[str, _Make] = MappingProxyType(
    {
        "arc": lambda _: AdaptiveReplacement(),
        "cremebrulee": lambda _: CremeBrulee(),
        "forecast": lambda _: Forecast(RateForecast()),
        "gdsf": lambda _: GreedyDualSizeFrequency(),
        "iam": _iam(SlidingWindow),
        "iam-ewma": _iam(ExponentialAverage),
        "lfu": lambda _: LeastFrequentlyUsed(),
        "lru": lambda _: LeastRecentlyUsed(),
        "popularity": lambda _: Popularity(),
        "random": lambda known: RandomChoice(np.random.default_rng(known.seed)),
        "srrip": lambda _: StaticReReference(),
    }
)
_CLAIRVOYANT: Mapping[str, _Make] = MappingProxyType(
    {
        "belady-min": lambda known: BeladyMin(known.requests),
        "cremebrulee-oracle": lambda known: CremeBruleeOracle(known.requests),
        "iam-true-rates": lambda known: ImportanceAware(TrueRates(known.rates)),
    }
)
"""Policies that need the future; for experiments only."""


def policy_names(*, clairvoyant: bool = True) -> tuple[str, ...]:
    """Names that `make_policy` accepts; without ``clairvoyant`` only those that can be used in a daemon."""
    return tuple(sorted({**_SERVING, **_CLAIRVOYANT} if clairvoyant else _SERVING))


def make_policy(name: str, knowledge: Knowledge | None = None) -> Policy:
    """Create a policy for one cache.

    Raises
    ------
    ConfigurationError
        If there is no policy of that name.
    """
    make = _SERVING.get(name) or _CLAIRVOYANT.get(name)
    if make is None:
        raise ConfigurationError(
            f"there is no policy {name!r} for models", advice=f"choose one of {', '.join(policy_names())}"
        )
    return make(knowledge or Knowledge())
