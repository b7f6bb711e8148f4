"""A profile from the catalogue's own models."""

import pytest

from nearsight.common.clock import ManualClock
from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.edge.quick_profile import measure_quick_profile, sample_of
from support.objects import random_model

SETTINGS = RecognitionSettings(query_features=60)


class TickingClock(ManualClock):
    """Every reading takes a millisecond."""

    def monotonic(self) -> float:
        self.advance(0.001)
        return super().monotonic()


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_any_number_of_models_makes_a_usable_profile(count: int) -> None:
    models = [random_model(f"o{index}", index, count=80) for index in range(count)]
    profile = measure_quick_profile(models, SETTINGS, TickingClock())
    assert profile.lookup_ms[0] == pytest.approx(1.0, rel=0.01)
    assert profile.lookup_ms[1] >= 0
    assert profile.recall == (0.9, -0.00014)
    assert "models of the catalogue" in profile.dataset


def test_no_model_makes_none() -> None:
    with pytest.raises(InvalidArgument):
        measure_quick_profile([], SETTINGS, ManualClock())


def test_the_sample_is_spread_over_the_catalogue() -> None:
    names = [str(number) for number in range(100)]
    assert sample_of(names, 4) == ("0", "25", "50", "75")
    assert sample_of(names[:3], 4) == ("0", "1", "2")
