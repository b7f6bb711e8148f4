"""Sensor flicker: beacon logs that jump between two neighbouring exhibits while the visitor stands still."""

from __future__ import annotations

from collections.abc import Sequence

_LEAST_RUN = 4


def without_flicker(walk: Sequence[str]) -> tuple[str, ...]:
    """Replace every alternation A B A B … by A B.

    Going back once, A B A, is what visitors do; from the fourth entry on it is taken for flicker.

    Parameters
    ----------
    walk : sequence of str
        Exhibits in order, no two equal ones in a row.
    """
    steady: list[str] = []
    at = 0
    while at < len(walk):
        end = _end_of_alternation(walk, at)
        if end - at >= _LEAST_RUN:
            steady.extend(walk[at : at + 2])
            at = end
        else:
            steady.append(walk[at])
            at += 1
    return tuple(steady)


def _end_of_alternation(walk: Sequence[str], start: int) -> int:
    """Index after the last entry that equals the one two before it, from ``start`` on."""
    end = min(start + 2, len(walk))
    while end < len(walk) and walk[end] == walk[end - 2]:
        end += 1
    return end
