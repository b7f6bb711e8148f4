"""Cycles of loading and executing networks: interrupted runs, and comparisons with the papers."""

from pathlib import Path

import pytest

from nearsight.experiments.framework.experiment import Row, RunOptions, StoredRow
from nearsight.experiments.framework.running import adopt_cells, cells_of, conclude, prepare, run_cells
from nearsight.experiments.model_serving import profiles
from nearsight.experiments.model_serving.profiles import COLUMNS
from nearsight.experiments.studies.cremebrulee.profiles_figure import Figure as CremeBrulee
from nearsight.experiments.studies.mcache.profiles_figure import Figure as MCache


def test_networks_are_measured_in_turn_and_both_papers_share_cells() -> None:
    theirs, ours = ([*cells_of(one, RunOptions())] for one in (MCache(), CremeBrulee()))
    assert theirs[:4] == ["small-1-0", "small-4-0", "small-16-0", "small-1-1"]
    assert ours[: len(theirs)] == theirs
    assert (len(theirs), len(ours)) == (3 * 20 // 5, 3 * 50 // 5)


def test_networks_with_similar_names_have_separate_cells() -> None:
    assert len({MCache().key(network=name, part=0) for name in ("a-b", "a--b", "a-b-")}) == 3


def test_an_interrupted_run_continues_and_the_other_study_adopts_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []

    def run(self: object, options: RunOptions, network: str, part: int) -> list[Row]:
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(f"{network}-{part}")
        common = {"network": network, **dict.fromkeys(("file_mb", *COLUMNS), float(network.split("-")[1]))}
        return [{**common, "cycle": 5 * part + place} for place in range(5)]

    monkeypatch.setattr(profiles.Profiles, "run", run)
    first, options = MCache(), RunOptions()
    prepare(first, options, tmp_path / "first")
    with pytest.raises(KeyboardInterrupt):
        run_cells(first, options, tmp_path / "first", lambda: None)
    measured.append("again")
    run_cells(first, options, tmp_path / "first", lambda: None)
    assert len(measured) == len(set(measured)) == 12 + 1
    assert {one["cycles"] for one in conclude(first, tmp_path / "first").summary["metrics"].values()} == {20}
    second = CremeBrulee()
    prepare(second, options, tmp_path / "second")
    assert adopt_cells(second, options, tmp_path / "second", tmp_path / "first") == 12


def test_statements_of_the_paper_about_its_processor_are_compared() -> None:
    def row(network: str, load_ms: float, first_ms: float, execution_ms: float) -> StoredRow:
        times = {"load_ms": load_ms, "first_ms": first_ms, "execution_ms": execution_ms, "file_mb": load_ms}
        return {**dict.fromkeys(COLUMNS, "1"), "network": network, **{k: str(v) for k, v in times.items()}}

    rows = [
        row("NASNetLarge", 1500.0, 500.0, 450.0),
        row("MobileNet", 90.0, 60.0, 20.0),
        row("ResNet50", 200.0, 300.0, 250.0),
    ]
    figure = CremeBrulee()
    summary = figure.metrics(rows)
    longer, slowest, first, loads, executions = figure.targets(summary)
    assert (longer.value, longer.reached) == (2, False)
    assert (slowest.value, slowest.note) == (0.45, "NASNetLarge")
    assert first.value == pytest.approx(1.2)
    assert (loads.value, executions.value) == (1.0, 1.0)
    lines = {line["network"]: line for line in figure.table(summary)}
    assert lines["the same per GB of system memory"]["calculated"] == "1.23"
    assert lines["an hour of a p2.xlarge over one of an m5.large"]["calculated"] == "9.38"
    assert lines["NASNetLarge"]["paper's µ$"] == "519.3, 33.8", (
        "19.474 s and 1.269 s at 0.096 $/h, in millionths"
    )
