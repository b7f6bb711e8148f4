"""Figure 3.4, tables 3.1 and 3.2: one measurement, three results."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.experiments.framework.experiment import Experiment, RunOptions, StoredRow
from nearsight.experiments.framework.running import adopt_rows, prepare
from nearsight.experiments.studies.cachier.fig3_4 import Figure as Figure34
from nearsight.experiments.studies.cachier.fig3_4 import Table3x1, Table3x2

ALGORITHMS = ("flann-lsh", "brute-force", "exact", "auto")


def rows_of(lookup_ms: Callable[[str, int], float], recall: float = 0.9) -> list[StoredRow]:
    return [
        {
            "algorithm": algorithm,
            "objects": "400",
            "k": str(k),
            "subset": str(subset),
            "backend": algorithm,
            "relevant": "20",
            "noise": "100",
            "lookup_ms": repr(lookup_ms(algorithm, k)),
            "recall": repr(recall),
            "precision": "0.97",
        }
        for algorithm in ALGORITHMS
        for k in (1, 50, 100, 400)
        for subset in range(2)
    ]


def test_measurements_on_the_lines_of_table_3_2_give_its_coefficients() -> None:
    summary = Table3x2().metrics(rows_of(lambda _, k: 51.14 + 1.87 * k))
    fit = summary["algorithms"]["flann-lsh"]["lookup_ms"]
    assert (fit["a"], fit["b"]) == pytest.approx((51.14, 1.87))
    assert fit["b_std"] == pytest.approx(0.0, abs=1e-9)
    first, *_ = Table3x2().table(summary)
    assert first["f(k) [ms]"] == first["paper, Stanford"] == "51.14 + 1.8700 k"


@pytest.mark.parametrize(("slope", "reached"), [(0.019, True), (0.021, False)])
def test_the_target_of_the_default_is_a_tenth_of_the_slope_of_lsh(slope: float, reached: bool) -> None:
    summary = Figure34().metrics(rows_of(lambda one, k: 5 + (slope if one == "auto" else 0.2) * k))
    (target, _precision) = Figure34().targets(summary)
    assert target.value == pytest.approx(slope / 0.2)
    assert target.reached is reached


def test_a_lower_recall_than_lsh_misses_the_target_of_table_3_1() -> None:
    rows = rows_of(lambda _, k: 5.0 + k)
    worse = [{**row, "recall": "0.8"} if row["algorithm"] == "auto" else row for row in rows]
    recalls = [Table3x1().targets(Table3x1().metrics(some))[0].reached for some in (rows, worse)]
    assert recalls == [True, False]


@pytest.fixture
def folder(smoke_runs) -> Path:
    """Folder of the smoke run of figure 3.4."""
    smoke_runs.folder("fig3.4")
    return smoke_runs.root


@pytest.mark.system
def test_all_algorithms_are_measured_with_the_same_subsets_and_photos(folder: Path) -> None:
    pin_threads()
    options = RunOptions(smoke=True, museums=folder / "results/museums")
    experiment = Figure34()
    exact, brute_force = (
        [(row["k"], row["relevant"], row["noise"], row["recall"]) for row in experiment.run(options, 0, name)]
        for name in ("exact", "brute-force")
    )
    assert exact == brute_force, "both compare with every descriptor"
    assert [row[0] for row in exact] == [1, 2, 3, 6, 12]
    assert exact[-1][2] > 0, "photos outside the data set are noise even for all of its objects"


@pytest.mark.system
@pytest.mark.parametrize("name", ["table3.1", "table3.2"])
def test_the_tables_use_the_rows_of_the_figure(smoke_runs, name: str) -> None:
    figure, table = smoke_runs.folder("fig3.4"), smoke_runs.folder(name)
    assert (table / "rows.csv").read_text() == (figure / "rows.csv").read_text()
    summary = json.loads((table / "summary.json").read_text())
    assert summary["rows_of"].endswith("fig3.4-smoke")
    assert summary["targets"]


@pytest.mark.system
def test_a_table_names_the_run_of_its_rows(
    smoke_runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    smoke_runs.copy("fig3.4", tmp_path / "results/experiments")
    monkeypatch.chdir(tmp_path)
    assert main(["experiment", "run", "table3.1", "--smoke"]) == 0
    shown = capsys.readouterr()
    assert "using those in" in shown.err
    assert "LSH (FLANN)" in shown.out


@pytest.mark.system
def test_rows_of_other_settings_are_not_used(folder: Path, tmp_path: Path) -> None:
    other = folder / "results/experiments/fig3.4-smoke"
    table: Experiment = Table3x1()
    prepare(table, RunOptions(smoke=True, seed=2), tmp_path / "seed")
    assert not adopt_rows(table, tmp_path / "seed", other)
    prepare(table, RunOptions(smoke=True), tmp_path / "same")
    assert not adopt_rows(table, tmp_path / "same", tmp_path / "nothing")
    assert adopt_rows(table, tmp_path / "same", other)
