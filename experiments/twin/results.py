"""The result cache in the twin: the same stage as in the daemons, for photos without pixels.

Photos may have measured keys, from clips of visitors in front of exhibits. A photo without measured keys is
its own key: two photos are equal if the twin knows no difference, for example if a file is sent again. A
photo drawn anew has its own size, so it is a new view. Such photos show the cost of lookups where nothing
repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from random import Random
from typing import Protocol, cast

from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import Clock
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.common.result_cache.stage import KeyedQuery, ResultStage
from nearsight.experiments.twin.photos import TwinPhoto

RESULT_LOOK_S = 0.0005
"""CPU time of a lookup on the machine of the measured costs [s]: decoding the small photo, key and lookup.
"""
THUMBNAIL_S = 0.0004
"""Part of `RESULT_LOOK_S` for decoding the photo [s]; a device that sends a thumbnail does it instead."""


class TwinKeyed(Protocol):
    """Additional attributes of the twin's queries."""

    photo_key: TwinPhoto
    result_s: float
    """CPU time of the lookup [s]."""


class TwinResultStage(ResultStage):
    """The daemons' stage with given instead of measured keys and lookup times: every run gives the same."""

    def __init__(
        self,
        catalogue: str,
        listing: Callable[[], Listing | None],
        settings: ResultCacheSettings,
        clock: Clock,
        rng: Random | None = None,
    ) -> None:
        del rng
        super().__init__(catalogue, listing, settings, clock, Random(1))

    def _keys_of(self, query: KeyedQuery, revision: int) -> tuple[Hashable, ...]:
        photo = cast("TwinKeyed", query).photo_key
        return tuple((key, query.client, revision) for key in photo.keys or (photo,))

    def _spent_ms(self, query: KeyedQuery, measured_s: float) -> float:
        del measured_s
        return cast("TwinKeyed", query).result_s * 1e3
