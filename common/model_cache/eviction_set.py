"""Which models to evict together: of the models with the lowest scores, those whose loss is the least.

Evicting a model loses its score times its size. The models that greedy choice takes before they suffice often
free more than is needed, and some of them can stay: a knapsack among few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nearsight.common.model_cache.policy import ModelCosts, Victim

EXACT_UP_TO = 12
"""Models of which all subsets are compared."""


def cheapest_that_suffice(
    chosen: Sequence[Victim], evictable: Mapping[str, ModelCosts], needed_bytes: int
) -> list[Victim]:
    """Of models that suffice together, the subset that loses least and still suffices.

    Exact for up to 12 models; of more, the costliest ones that are not needed stay, one after the other.
    """
    sizes = np.array([evictable[victim.model].size_bytes for victim in chosen], dtype=np.float64)
    losses = np.array([victim.score for victim in chosen]) * sizes
    if len(chosen) == 1:
        return [*chosen]
    if len(chosen) <= EXACT_UP_TO:
        members = (np.arange(2 ** len(chosen))[:, None] >> np.arange(len(chosen)) & 1).astype(np.float64)
        lost = np.where(members @ sizes >= needed_bytes, members @ losses, np.inf)
        kept = members[int(lost.argmin())] > 0
    else:
        kept = np.ones(len(chosen), dtype=bool)
        to_spare = sizes.sum() - needed_bytes
        for place in np.argsort(-losses, kind="stable"):
            if sizes[place] <= to_spare:
                kept[place] = False
                to_spare -= sizes[place]
    return [victim for victim, goes in zip(chosen, kept, strict=True) if goes]
