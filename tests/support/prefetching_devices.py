"""Devices that recognise objects themselves, as predicted by a real edge with five exhibits."""

from contextlib import ExitStack

import pytest

from nearsight import Recognizer, RecognizerSettings
from nearsight.common.request.next_tiers import BreakerSettings
from nearsight.device.prefetching.profiler import AvoidableLatency
from nearsight.device.recognizer_settings import PrefetchSettings
from support.gallery import SETTINGS, SIDE, exhibit_models
from support.pictures import photo_jpeg
from support.predicting_edge import PredictingEdge
from support.recognition_server import ScriptedRecognition, always, serve
from support.waiting import LONG_S, wait_until

PREFETCH = PrefetchSettings(recognition=SETTINGS, timeout_s=LONG_S, refresh_s=0.001)
QUICK = RecognizerSettings(
    timeout_s=LONG_S,
    prefetch=PREFETCH,
    breaker=BreakerSettings(cooldown_s=0.05, longest_cooldown_s=0.1, probe_timeout_s=LONG_S),
)


def make_misses_costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let devices hold all that is predicted, however fast machine and edge are."""
    monkeypatch.setattr(AvoidableLatency, "median_ms", property(lambda _: 60_000.0))


def photo(number: int) -> bytes:
    return photo_jpeg(number, side=SIDE)


def name(number: int) -> str:
    return f"exhibit-{number}"


def settings(**changes: object) -> RecognizerSettings:
    return QUICK.model_copy(update={"prefetch": PREFETCH.model_copy(update=changes)})


class Scene:
    """An edge with five exhibits, and devices."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.edge = PredictingEdge(exhibit_models(5))
        stack.callback(self.edge.stop)

    def device(
        self, chosen: RecognizerSettings = QUICK, *, edge: str | None = None, cloud: str | None = None
    ) -> Recognizer:
        recognizer = Recognizer(
            edge or self.edge.endpoint, cloud, "museum", device_id="phone-1", settings=chosen
        )
        return self._stack.enter_context(recognizer)

    def scripted(self, tier: str) -> tuple[ScriptedRecognition, str]:
        service = ScriptedRecognition(always(tier))
        server = serve(service, tier)
        self._stack.callback(server.stop, 0.0)
        return service, server.endpoint


def holds(device: Recognizer, count: int) -> None:
    """Wait until the device recognises ``count`` objects itself."""

    def held() -> bool:
        state = device.prefetch_state
        return state is not None and state.k == count

    wait_until(held, what=f"{count} objects on the device")
