"""The result cache in the twin: the same stage as in daemons, for photos without pixels.

Photos may bring keys that were measured, on clips of visitors who stand before exhibits. Those without have
the same key if the twin knows nothing that tells them apart: a file that is sent again. What it draws anew,
with a size of its own, is a new view: it shows what looking costs where nothing repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from random import Random
from typing import Protocol, cast

from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import Clock
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.common.result_cache.stage import KeyedQuery, Keying, ResultStage
from nearsight.experiments.twin.photos import TwinPhoto

RESULT_LOOK_S = 0.0005
"""CPU time of a look on the machine of the measured costs: reading the shrunk photo, key and lookup."""
THUMBNAIL_S = 0.0004
"""Of these, reading the photo, which a device does that sends a thumbnail."""


class TwinKeyed(Protocol):
    """What queries of the twin have besides."""

    photo_key: TwinPhoto
    result_s: float
    """What the look takes."""


class TwinResultStage(ResultStage):
    """The daemons' stage; keys and what a look takes are known, not measured, and each run is the same."""

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

    def _keys_of(self, query: KeyedQuery, keying: Keying) -> tuple[Hashable, ...]:
        photo = cast("TwinKeyed", query).photo_key
        return tuple((key, query.client, keying.revision) for key in photo.keys or (photo,))

    def _spent_ms(self, query: KeyedQuery, measured_s: float) -> float:
        del measured_s
        return cast("TwinKeyed", query).result_s * 1e3
