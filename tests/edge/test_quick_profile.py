"""Quick profiles, measured with the models of the catalogue."""

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from unittest.mock import Mock

import numpy as np
import pytest

from nearsight.common.catalogue.answers import add_models
from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidArgument
from nearsight.common.object_cache.profile import default_profile
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.common.rpc.call import Reply
from nearsight.edge.profiler import Profiler
from nearsight.edge.quick_profile import ProfileMeasurement, decoy, fits, measure_quick_profile, sample_of
from nearsight.edge.settings import EdgeSettings
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse
from support.manual_background import ManualBackground
from support.objects import random_model

SETTINGS = RecognitionSettings(query_features=60)


def ticking() -> Callable[[], float]:
    """A clock that advances by a millisecond per reading."""
    ticks = itertools.count()
    return lambda: next(ticks) / 1000


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_any_number_of_models_gives_a_valid_profile(count: int) -> None:
    models = [random_model(f"o{index}", index, count=80) for index in range(count)]
    profile = measure_quick_profile(models, 40, SETTINGS, 0.0, np.random.default_rng(1), ticking())
    assert profile.largest_k == 40
    assert profile.lookup_ms[0] == pytest.approx(1.0, rel=0.01)
    assert profile.lookup_ms[1] >= 0
    assert profile.recall == (0.9, -0.00014)
    assert "models of the catalogue" in profile.dataset


def test_without_models_there_is_no_profile() -> None:
    with pytest.raises(InvalidArgument):
        measure_quick_profile([], 0, SETTINGS, 0.0, np.random.default_rng(1))


def test_sizes_beyond_the_catalogue_are_not_measured() -> None:
    profile = measure_quick_profile(
        [random_model("only")], 1, SETTINGS, 0.0, np.random.default_rng(1), ticking()
    )
    assert profile.largest_k == 1
    assert profile.lookup_ms[1] == 0


def test_a_quick_profile_fits_until_the_catalogue_is_four_times_as_large() -> None:
    quick = measure_quick_profile(
        [random_model("only")], 1, SETTINGS, 0.0, np.random.default_rng(1), ticking()
    )
    assert fits(quick, 3)
    assert not fits(quick, 4)
    assert fits(quick.model_copy(update={"largest_k": 128}), 100_000), "larger sizes are not measured"
    assert fits(quick.model_copy(update={"dataset": "museum"}), 100_000), "measured by `nearsight profile`"
    assert not fits(default_profile(), 1)


def test_a_closed_measurement_leaves_the_profile_unchanged() -> None:
    reply: Future[Reply] = Future()
    services = Mock(background=ManualBackground(ManualClock()))
    services.cloud.get_models.return_value = reply
    profiler = Profiler(default_profile())
    measurement = ProfileMeasurement("museum", lambda: {"only": 1}, profiler, EdgeSettings(), services)
    measurement.update()
    measurement.close()
    blobs: list[bytes | memoryview] = []
    response = GetObjectModelsResponse()
    add_models(response, blobs, [random_model("only")], 10**6)
    reply.set_result(Reply(response, tuple(map(memoryview, blobs)), (), 0, 0))
    services.background.run()
    assert profiler.profile == default_profile()


def test_a_decoy_has_the_inner_distances_of_its_model_and_is_far_from_it() -> None:
    model = random_model("o", count=80)
    fake = decoy(model, 7, np.random.default_rng(1))
    ours, theirs = model.views[0].descriptors, fake.views[0].descriptors
    inside = np.bitwise_count(theirs[0] ^ theirs[1]).sum()
    assert inside == np.bitwise_count(ours[0] ^ ours[1]).sum()
    assert 100 < np.bitwise_count(ours ^ theirs).sum(axis=1).mean() < 156
    assert fake.object_id != model.object_id


def test_the_sample_is_distributed_over_the_catalogue() -> None:
    names = [str(number) for number in range(100)]
    assert sample_of(names, 4) == ("0", "25", "50", "75")
    assert sample_of(names[:3], 4) == ("0", "1", "2")
