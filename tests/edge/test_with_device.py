"""The SDK, a real edge and a cloud: their messages, and catalogues of no and one object."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nearsight import Recognizer, RecognizerSettings
from nearsight.common.clock import SYSTEM_CLOCK
from nearsight.common.errors import Overloaded
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.request.effects import Ask
from nearsight.common.request.forms import FEATURES, IMAGE
from nearsight.common.request.next_tiers import BreakerState
from nearsight.common.rpc.client import Channel
from nearsight.device.query import DeviceQuery, QueryContext
from nearsight.device.recognizer_settings import PrefetchSettings, UploadSettings
from nearsight.device.tiers import RemoteTier
from nearsight.edge.catalogue_cache import CatalogueCache
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings
from support.edge import (
    CATALOGUE,
    RECOGNITION,
    ScriptedCloud,
    Serve,
    answer_of,
    cache_of,
    cached,
    features_of,
    make_misses_costly,
    photo,
    running_edge,
    warm,
)
from support.requests import asked
from support.waiting import LONG_S, wait_until

UNKNOWN = 77
PATIENT = RecognizerSettings(timeout_s=LONG_S)


@contextmanager
def device_at(edge: EdgeDaemon) -> Iterator[RemoteTier]:
    tier = RemoteTier("edge", Channel(edge.endpoint, client_id="phone"), CATALOGUE)
    try:
        yield tier
    finally:
        tier.close()


def ask(device: RemoteTier, number: int) -> str | None:
    """Ask with features first, as a device after its own lookup."""
    context, image = QueryContext(UploadSettings(), SYSTEM_CLOCK), photo(number)
    features = DeviceQuery(features_of(image), context)
    found = asked(device, features, Ask("edge", FEATURES, LONG_S, 0)).found
    if found is None:
        again = Ask("edge", IMAGE, LONG_S, 0, again=True)
        found = asked(device, DeviceQuery(image, context), again).found
    return found.object_id if found is not None else None


def test_a_request_that_the_cloud_refused_through_the_edge_is_not_repeated(
    cloud: ScriptedCloud, serve: Serve
) -> None:
    with (
        serve(forward="image") as (edge, device),
        Recognizer(edge.endpoint, cloud.endpoint, CATALOGUE, settings=PATIENT) as sdk,
    ):
        device.ask(photo(0))
        cloud.recognize_error = Overloaded("too many requests")
        cloud.received.clear()
        for _ in range(5):  # more often than the breaker permits failures
            with pytest.raises(Overloaded, match=r"edge after .*too many requests"):
                sdk.recognize_blocking(photo(1))
        assert len(cloud.received) == 5
        assert sdk.breaker_states()["edge"] is BreakerState.CLOSED


def test_the_miss_latency_is_the_time_to_the_first_answer(
    cloud: ScriptedCloud, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request, with the image, could not be saved by a cache."""
    with serve(forward="features") as (edge, device):
        device.ask(photo(0))
        measured: list[float] = []
        monkeypatch.setattr(cache_of(edge).profiler, "observe_miss", measured.append)
        cloud.received.clear()
        cloud.image_gate.clear()
        begun_s = time.monotonic()
        answer = device.send(photo(UNKNOWN))
        wait_until(lambda: cloud.received == ["features", "image"], what="the second request")
        first_ms = (time.monotonic() - begun_s) * 1e3
        cloud.image_gate.set()
        assert answer_of(answer.result(LONG_S)) == (None, "cloud")
        device.send(photo(UNKNOWN), features_unknown=True).result(LONG_S)
        wait_until(lambda: cache_of(edge).misses == 2, what="two misses")
        assert len(measured) == 1, "a second request alone is no miss"
        assert measured[0] <= first_ms


def test_the_overhead_of_an_empty_cache_is_no_part_of_the_miss_latency(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(forward="features") as (edge, device):
        device.ask(photo(UNKNOWN))  # creates the cache, which stays empty
        cache, measured = cache_of(edge), list[float]()
        monkeypatch.setattr(CatalogueCache, "_forwarding_overhead_ms", lambda *_: (60_000.0, 0.0))
        monkeypatch.setattr(cache.profiler, "observe_miss", measured.append)
        device.ask(photo(0))
        wait_until(lambda: measured == [0.0], what="a miss that is overhead only")
        warm(edge, device, [0])
        device.ask(photo(1))
        wait_until(lambda: max(measured) > 0.0, what="a miss of a filled cache")


@pytest.mark.parametrize("forward", ["auto", "features", "image"])
def test_an_unknown_photo_reaches_the_cloud_as_features_and_as_an_image_once_each(
    cloud: ScriptedCloud, cache_settings: CacheSettings, forward: str
) -> None:
    with (
        running_edge(cloud.endpoint, cache=cache_settings, forward=forward) as edge,
        device_at(edge) as device,
    ):
        assert ask(device, 0) == "00"
        assert cloud.received == ["features"], "a known photo needs no image"
        for asked in range(1, 6):
            assert ask(device, UNKNOWN) is None
            assert cloud.received == ["features"] + ["features", "image"] * asked


def test_catalogues_of_no_and_one_object_with_all_tiers(
    models: list[ObjectModel], cache_settings: CacheSettings
) -> None:
    prefetch = PrefetchSettings(recognition=RECOGNITION, miss_prior_ms=1000.0, refresh_s=0.05)
    chosen = PATIENT.model_copy(update={"prefetch": prefetch})
    cloud = ScriptedCloud([])
    try:
        with (
            running_edge(cloud.endpoint, cache=cache_settings) as edge,
            Recognizer(
                edge.endpoint, cloud.endpoint, CATALOGUE, device_id="phone", settings=chosen
            ) as device,
        ):
            for _ in range(3):
                assert not device.recognize_blocking(photo(0)).known
            cloud.set_models(models[:1])
            wait_until(lambda: cache_of(edge).listing.revision == 2, what="the new list at the edge")
            make_misses_costly(edge)

            def recognized() -> bool:
                return device.recognize_blocking(photo(0)).object_id == "00" and cached(edge) == {"00"}

            wait_until(recognized, what="the one object in the cache of the edge")
            assert not device.recognize_blocking(photo(1)).known

            cloud.set_models([])
            wait_until(lambda: cache_of(edge).listing.revision == 3, what="the empty list at the edge")
            wait_until(lambda: not cached(edge), what="an empty cache")
            wait_until(
                lambda: not device.recognize_blocking(photo(0)).known,
                what="an empty cache on the device",
            )
    finally:
        cloud.stop()
