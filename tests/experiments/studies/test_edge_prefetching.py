"""Prefetching of the edge: metrics computed from rows, table and picture."""

from __future__ import annotations

from nearsight.edge.prediction import PrefetchCount
from nearsight.experiments.framework.experiment import Results, RunOptions
from nearsight.experiments.rig.rows import RequestRow
from nearsight.experiments.rig.session import Played
from nearsight.experiments.studies.edge_prefetching import (
    CONFIGURATIONS,
    PREFETCHING,
    PRIOR,
    UNTAUGHT,
    WITHOUT,
    Figure,
    photo_rows,
)
from nearsight.experiments.studies.profiles import LSH, OURS
from support.figures import png_size


def photo(number: int, shown: str, tier: str, latency_ms: float) -> RequestRow:
    return RequestRow("x", "v1", number, float(number), 0.1, shown, shown, "recognized", 1, tier, latency_ms)


def rows() -> list[dict[str, str]]:
    """Two exhibits, two photos each; a prefetched object makes the second exhibit's first photo a hit."""
    without = (photo(0, "a", "cloud", 100), photo(1, "a", "edge", 20), photo(2, "b", "cloud", 100))
    prefetched = (photo(0, "a", "cloud", 100), photo(1, "a", "edge", 20), photo(2, "b", "edge", 20))
    played = {
        WITHOUT: Played((*without, photo(3, "b", "edge", 20)), PrefetchCount(0, 0, 0)),
        PREFETCHING: Played((*prefetched, photo(3, "b", "edge", 20)), PrefetchCount(3, 1, 2)),
    }
    return [
        {
            key: str(value)
            for key, value in {"backend": LSH, "tiers": name, "repetition": repetition, **row}.items()
        }
        for name, one in played.items()
        for repetition in range(2)
        for row in photo_rows(one)
    ]


def test_first_photos_of_an_exhibit_are_counted_separately() -> None:
    found = Figure().metrics(rows())["backends"][LSH]
    assert found[WITHOUT]["first_photos"] | {"mean_ms": 0} == {"requests": 4, "edge_share": 0.0, "mean_ms": 0}
    assert found[PREFETCHING]["first_photos"]["edge_share"] == 0.5
    assert found[PREFETCHING]["first_photos"]["mean_ms"]["mean"] == 60.0
    assert (found[WITHOUT]["mean_ms"]["mean"], found[PREFETCHING]["mean_ms"]["mean"]) == (60.0, 40.0)


def test_prefetched_objects_are_summed_over_repetitions() -> None:
    found = Figure().metrics(rows())["backends"][LSH]
    assert found[PREFETCHING]["prefetched"] == {"entered": 6, "useful": 2, "wasted": 4}
    assert found[WITHOUT]["prefetched"]["entered"] == 0


def test_table_and_picture_are_complete() -> None:
    figure = Figure()
    metrics = figure.metrics(rows())
    named = [(line["backend"], line["configuration"]) for line in figure.table(metrics)]
    assert named == [(LSH, WITHOUT), (LSH, PREFETCHING)]
    assert [line["no answer"] for line in figure.table(metrics)] == [0, 0]
    assert png_size(figure, rows()) > 10_000
    assert figure.targets(metrics) == (), "the results are reported without targets"


def test_the_caption_has_the_photos_of_a_repetition() -> None:
    figure = Figure()
    picture = figure.draw(Results(rows(), figure.metrics(rows())))
    assert picture.get_suptitle().startswith("4 photos per edge and repetition")
    assert "prefetched objects: sums" in picture.get_suptitle()


def test_the_papers_prior_is_measured_without_warm_up() -> None:
    assert CONFIGURATIONS[PRIOR] == {"cache.prior_mass": "inf"}
    assert PRIOR in UNTAUGHT
    parts = [(cell["backend"], cell["configurations"]) for cell in Figure().cells(RunOptions())]
    assert (LSH, (PRIOR,)) in parts
    assert (OURS, (PREFETCHING,)) in parts
    assert len(parts) == 3 * 6
