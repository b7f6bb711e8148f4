"""Percentages have one form everywhere."""

import re

import pytest

from nearsight.common.text import percent
from nearsight.experiments.bench.benchmark import Benchmark
from support.import_graph import ROOT


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [(0.63, 0, "63 %"), (1.0, 0, "100 %"), (0.0125, 1, "1.2 %"), (-0.5, 0, "-50 %")],
)
def test_a_share_is_a_percentage_with_a_space(share: float, digits: int, text: str) -> None:
    assert percent(share, digits) == text


def test_a_table_of_a_benchmark_has_the_same_form() -> None:
    table = Benchmark("one", "", {"answered": "{answered:.0%}"}, [{"answered": 0.5}]).table()
    assert [*table.columns[0].cells] == ["50 %"]


def test_no_text_has_percentages_in_the_format_of_python() -> None:
    places = [
        str(path)
        for layer in ("common", "device", "edge", "cloud", "experiments")
        for path in (ROOT / layer).rglob("*.py")
        if ROOT / "experiments/bench" not in path.parents and re.search(r":[+,]?(\.\d)?%\}", path.read_text())
    ]
    assert places == []
