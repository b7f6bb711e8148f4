"""Generated network flows for the figures of approximate-key caching, whose data set is private.

A flow consists of the sizes and directions of its first 100 packets, and its application. The paper reports
the effect of approximations on its flows (figure 3c; for prefix(5) without refresh, figure 4). The constants
below were fitted to these values only:

- packets 1 to 5 are the handshake of a protocol stack, which many applications share;
- packets 6 to 10 are the greeting of one of the application's services; some services, such as
  advertisements, are used by many applications; in some flows one packet of the greeting varies, and some
  flows look like those of another application;
- the rest is the transfer: mostly full packets in bulk flows, any size in others; flows differ in length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nearsight.common.result_cache.result_cache import ResultCache
from nearsight.experiments.framework.numbers import zipf

K = TypeVar("K")

PACKETS = 100
APPLICATIONS = 200
_HANDSHAKE, _GREETING = 5, 10
"""Index of the first packet after the handshake, and after the greeting."""
_SMALLEST, _LARGEST = 60, 1460
"""Payload of a packet [bytes]."""

POPULARITY = 1.45
"""Exponent of Zipf's law for applications."""
_STACKS, _STACK_POPULARITY = 3000, 1.2
_OWN_STACKS = 3
"""Number of an application's own stacks; the share of flows below uses any stack."""
_ANY_STACK = 0.47
_SERVICES, _SERVICE_POPULARITY = 20, 1.1
_SHARED_SERVICES, _SHARED = 40, 0.1
"""Number of services that all applications use, and share of flows to them."""
_FOREIGN = 0.035
"""Share of the flows that look like those of another application, such as embedded content."""
_VARYING = 0.32
"""Share of the flows in which one packet of the greeting varies."""
_MEDIAN_LENGTH, _LENGTH_SPREAD = 130.0, 1.2
"""Length of flows [packets] before they are cut at 100: log-normal."""
_BULK, _FULL_IN_BULK, _FULL_ELSEWHERE = 0.57, 0.98, 0.15
"""Share of bulk flows, and of full packets in these and in other flows."""
_UPWARDS = 0.008
"""Share of the packets of a transfer that the client sends."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Independent flows in order of arrival."""

    packets: NDArray[np.int16]
    """(N, M): sizes [bytes]; negative from the client to the server; 0 after the end of the flow."""
    applications: NDArray[np.int64]
    """(N,): 0 to 199, the most popular first."""


def flows(
    count: int,
    rng: np.random.Generator,
    *,
    phases: Sequence[NDArray[np.float64]] = (),
    packets_kept: int = PACKETS,
) -> Traffic:
    """Generate the flows of one network.

    Parameters
    ----------
    count : int
        N.
    rng : numpy.random.Generator
        Also draws the network: its stacks, its services, and the applications that use them.
    phases : sequence of ndarray, shapes (200,)
        Popularity of the applications in consecutive phases of equal numbers of flows; default: one phase
        with Zipf's law.
    packets_kept : int
        M, of each flow; at least 10.
    """
    popularity = phases or (zipf(APPLICATIONS, POPULARITY),)
    applications = _applications(count, rng, popularity)
    packets = np.zeros((count, packets_kept), dtype=np.int16)

    others = _applications(count, rng, popularity)
    owner = np.where(rng.random(count) < _FOREIGN, others, applications)
    stacks = _sizes(rng, (_STACKS, _HANDSHAKE)) * np.array([-1, 1, -1, 1, 1], dtype=np.int16)
    own = rng.choice(_STACKS, (APPLICATIONS, _OWN_STACKS), p=zipf(_STACKS, 0.3))
    stack = own[owner, rng.choice(_OWN_STACKS, count, p=zipf(_OWN_STACKS, 1.0))]
    anyone = rng.choice(_STACKS, count, p=zipf(_STACKS, _STACK_POPULARITY))
    stack = np.where(rng.random(count) < _ANY_STACK, anyone, stack)
    packets[:, :_HANDSHAKE] = stacks[stack]

    greetings = _sizes(rng, (APPLICATIONS * _SERVICES + _SHARED_SERVICES, _GREETING - _HANDSHAKE))
    greetings *= rng.choice(np.array([1, 1, -1], dtype=np.int16), greetings.shape)
    service = owner * _SERVICES + rng.choice(_SERVICES, count, p=zipf(_SERVICES, _SERVICE_POPULARITY))
    common = APPLICATIONS * _SERVICES + rng.integers(_SHARED_SERVICES, size=count)
    service = np.where(rng.random(count) < _SHARED, common, service)
    packets[:, _HANDSHAKE:_GREETING] = greetings[service]
    varying = np.flatnonzero(rng.random(count) < _VARYING)
    packets[varying, rng.integers(_HANDSHAKE, _GREETING, len(varying))] = _sizes(rng, (len(varying),))

    transfer = _sizes(rng, (count, packets_kept - _GREETING))
    full = np.where(rng.random(count) < _BULK, _FULL_IN_BULK, _FULL_ELSEWHERE)
    transfer[rng.random(transfer.shape) < full[:, None]] = _LARGEST
    transfer[rng.random(transfer.shape) < _UPWARDS] *= -1
    packets[:, _GREETING:] = transfer
    lengths = rng.lognormal(np.log(_MEDIAN_LENGTH), _LENGTH_SPREAD, count)
    packets[np.arange(packets_kept) >= np.maximum(lengths, _GREETING)[:, None]] = 0
    return Traffic(packets, applications)


def play(cache: ResultCache[K, int], lookups: Iterable[tuple[K, int]]) -> int:
    """Look up keys, each with its correct class; return the number of wrong answers."""
    wrong = 0
    for key, truth in lookups:
        entry = cache.find(key, 0.0)
        if entry is None:
            cache.learn(key, truth, 0.0)
        else:
            wrong += entry.value != truth
    return wrong


def _applications(
    count: int, rng: np.random.Generator, phases: Sequence[NDArray[np.float64]]
) -> NDArray[np.int64]:
    lengths = np.diff(np.arange(len(phases) + 1) * count // len(phases))
    return np.concatenate(
        [rng.choice(APPLICATIONS, length, p=p) for length, p in zip(lengths, phases, strict=True)]
    )


def _sizes(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.int16]:
    return rng.integers(_SMALLEST, _LARGEST, shape, dtype=np.int16)
