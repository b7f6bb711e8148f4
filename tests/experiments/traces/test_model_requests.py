"""Requests for models: files, and the assignment of models to functions."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.traces.model_requests import (
    Association,
    ModelRequests,
    associate,
    own_models,
    read_events,
    write_events,
)

LOAD_S = np.array([2.0, 8.0, 4.0])


def requests(*pairs: tuple[float, int], names: tuple[str, ...] = ("a", "b", "c")) -> ModelRequests:
    times, models = zip(*pairs, strict=True)
    return ModelRequests(np.array(times), np.array(models, dtype=np.int32), names)


def named(some: ModelRequests) -> list[tuple[float, str]]:
    return [(time, some.names[model]) for time, model in zip(some.times_s, some.models, strict=True)]


def test_events_read_from_a_file_equal_the_written_ones(tmp_path: Path) -> None:
    some = requests((0.0, 2), (5e-324, 0), (0.1 + 0.2, 2), (0.1 + 0.2, 0), (1e9 / 3, 1))
    write_events(tmp_path / "events.txt", some)
    assert named(read_events(tmp_path / "events.txt")) == named(some)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0 1.5 birds\n1 2.5\n", "line 2: '1 2.5'"),
        ("0 1.5 birds trees\n", "line 1"),
        ("0 soon birds\n", "line 1"),
        ("0 nan birds\n", "line 1"),
        ("0 2 birds\n\n1 1 trees\n", "line 3: 1 s is before 2 s.*sort"),
        ("0 1 \udcff\n", "no text in UTF-8"),
    ],
)
def test_a_malformed_event_is_refused_with_its_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "events.txt"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InvalidArgument, match=complaint):
        read_events(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nothing\.txt"):
        read_events(tmp_path / "nothing.txt")


def test_a_name_with_spaces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="two words"):
        write_events(tmp_path / "events.txt", requests((0.0, 0), names=("two words",)))


@pytest.mark.parametrize(
    ("times", "models"), [([1.0, 0.5], [0, 0]), ([0.0, np.nan], [0, 0]), ([0.0], [3]), ([0.0, 1.0], [0])]
)
def test_requests_out_of_order_or_range_are_refused(times: list[float], models: list[int]) -> None:
    with pytest.raises(InvalidArgument):
        ModelRequests(np.array(times), np.array(models, dtype=np.int32), ("a", "b", "c"))


def test_downsampling_draws_each_request_independently() -> None:
    many = ModelRequests(np.arange(100_000.0), np.zeros(100_000, dtype=np.int32), ("a",))
    kept = many.downsampled(0.15, np.random.default_rng(1))
    assert len(kept) == pytest.approx(15_000, abs=4 * np.sqrt(100_000 * 0.15 * 0.85))
    gaps = np.diff(kept.times_s)
    assert np.mean(gaps == 1.0) == pytest.approx(0.15, abs=0.02)  # geometric, as with independent draws


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        # Models by decreasing cost: 1, 2, 0. Functions by decreasing popularity: 5, 4, … 0.
        (Association.ROUND_ROBIN, [0, 2, 1, 0, 2, 1]),
        (Association.POPULAR_AND_COSTLY, [0, 0, 2, 2, 1, 1]),
        (Association.POPULAR_AND_CHEAP, [1, 1, 2, 2, 0, 0]),
    ],
)
def test_models_are_assigned_to_functions_by_popularity(how: Association, expected: list[int]) -> None:
    popularity = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert associate(popularity, LOAD_S, how, np.random.default_rng(0)).tolist() == expected


def correlation(how: Association, popularity: NDArray[np.float64]) -> float:
    chosen = associate(popularity, LOAD_S, how, np.random.default_rng(2))
    return float(np.corrcoef(np.argsort(np.argsort(popularity)), LOAD_S[chosen])[0, 1])


def test_correlations_of_popularity_and_cost_equal_those_of_table_2() -> None:
    popularity = np.random.default_rng(3).lognormal(0.0, 3.0, 3_000)
    assert correlation(Association.UNIFORM, popularity) == pytest.approx(0.0, abs=0.08)
    assert correlation(Association.ROUND_ROBIN, popularity) == pytest.approx(0.0, abs=0.08)
    assert correlation(Association.POPULAR_AND_COSTLY, popularity) > 0.85
    assert correlation(Association.POPULAR_AND_CHEAP, popularity) < -0.85


def test_every_called_function_gets_its_own_model() -> None:
    times, functions = np.array([0.0, 1.0, 2.0]), np.array([7, 2, 7], dtype=np.int32)
    chosen = np.array([0, 0, 1, 0, 0, 0, 0, 1], dtype=np.int32)
    found, called = own_models(times, functions, chosen, ("VGG16", "NASNet"))
    assert named(found) == [(0.0, "NASNet-7"), (1.0, "NASNet-2"), (2.0, "NASNet-7")]
    assert called.tolist() == [2, 7]
    assert found.counts().tolist() == [1, 2]
