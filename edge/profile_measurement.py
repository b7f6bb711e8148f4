"""Measuring a quick profile for an edge that was given none: fetch a few models, time lookups, use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.catalogue.answers import models_of
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.client import Reply
from nearsight.edge.cloud_client import CloudClient, when_done
from nearsight.edge.profiler import Profiler
from nearsight.edge.quick_profile import measure_quick_profile, sample_of

_RETRY_S = 30.0
_SEED = 1


class ProfileMeasurement:
    """Measures once, in the background thread; tries again until the models can be fetched.

    Parameters
    ----------
    catalogue : str
        Whose models are used.
    versions : callable
        The catalogue as of now.
    profiler : Profiler
        Gets the profile.
    recognition : RecognitionSettings
        The pipeline that is measured.
    cloud, background, clock
        Where the models are, who works, and the time.
    """

    def __init__(
        self,
        catalogue: str,
        versions: Callable[[], Mapping[str, int]],
        profiler: Profiler,
        recognition: RecognitionSettings,
        *,
        cloud: CloudClient,
        background: BackgroundWorker,
        clock: Clock,
    ) -> None:
        self._catalogue = catalogue
        self._versions = versions
        self._profiler = profiler
        self._recognition = recognition
        self._cloud = cloud
        self._background = background
        self._clock = clock
        self._log = get_logger("profile").bind(catalogue=catalogue)
        self._closed = False

    def start(self, timeout_s: float) -> None:
        """Fetch the models, wait at most ``timeout_s`` for them, then measure."""
        sample = sample_of(tuple(self._versions()))
        if self._closed or not sample:
            return

        def go_on(outcome: Reply | NearsightError) -> None:
            self._background.submit(lambda: self._measure(sample, outcome, timeout_s))

        when_done(self._cloud.get_models(self._catalogue, sample, timeout_s), go_on)

    def close(self) -> None:
        """Measure no more."""
        self._closed = True

    def _measure(self, sample: tuple[str, ...], outcome: Reply | NearsightError, timeout_s: float) -> None:
        models = () if isinstance(outcome, NearsightError) else models_of(outcome, sample).models
        if not models:
            self._log.warning("no models for a quick profile yet: the built-in default stays in use")
            self._background.submit(
                lambda: self.start(timeout_s), name=f"profile {self._catalogue}", after_s=_RETRY_S
            )
            return
        profile = measure_quick_profile(
            models,
            len(self._versions()),
            self._recognition,
            self._clock.wall(),
            np.random.default_rng(_SEED),
        )
        self._profiler.use(profile)
        self._log.info(
            "quick profile", lookup_ms=[round(c, 4) for c in profile.lookup_ms], models=len(models)
        )
