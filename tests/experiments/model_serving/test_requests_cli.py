"""The command ``nearsight models requests``: from the Azure Functions trace to a log of requests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.model_serving.requests_cli import app
from nearsight.experiments.traces.functions import MINUTES
from nearsight.experiments.traces.model_requests import read_events


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A day with four functions of 1, 10, 20 and 1,440 calls, and costs of two networks."""
    monkeypatch.chdir(tmp_path)
    calls = np.zeros((4, MINUTES), np.int32)
    calls[0, 0] = 1
    calls[1, :10] = 1
    calls[2, 600:605] = 4
    calls[3] = 1
    head = ["HashOwner", "HashApp", "HashFunction", "Trigger", *map(str, range(1, MINUTES + 1))]
    rows = [["o", "a", f"f{number}", "http", *map(str, row)] for number, row in enumerate(calls)]
    Path("day.csv").write_text("".join(",".join(row) + "\n" for row in [head, *rows]))
    Path("costs.csv").write_text("model,memory_mb,load_ms,execution_ms\nslow,500,900,9\nfast,100,10,9\n")
    return tmp_path


def make(*options: str, given: Sequence[str] = ("--costs", "costs.csv")) -> Result:
    return CliRunner().invoke(app, ["requests", "day.csv", *given, *options])


def test_functions_called_once_or_most_often_are_left_out_and_each_requests_one_network(folder: Path) -> None:
    done = make("--association", "popular-and-costly")
    assert done.exit_code == 0, done.output
    assert "requests.txt: 30 requests, from the calls of 2 functions, for 2 networks" in done.output
    assert "next: nearsight plan requests.txt --costs costs.csv" in done.output
    log = read_events(folder / "requests.txt")
    assert [log.names[model] for model in log.models] == ["fast"] * 10 + ["slow"] * 20
    assert log.times_s[10:14].tolist() == [36_000.0, 36_015.0, 36_030.0, 36_045.0]


def test_the_next_command_is_quoted(folder: Path) -> None:
    Path("costs.csv").rename("the costs.csv")
    done = make("--out", "a log.txt", given=("--costs", "the costs.csv"))
    assert "next: nearsight plan 'a log.txt' --costs 'the costs.csv'" in done.output


def test_minutes_and_a_number_of_requests_are_chosen_and_the_seed_decides(folder: Path) -> None:
    logs = []
    for seed in ("1", "1", "2"):
        done = make(
            "--minute", "601", "--minutes", "5", "--requests", "10", "--seed", seed, "--quantile", "1"
        )
        assert done.exit_code == 0, done.output
        logs.append(read_events(folder / "requests.txt"))
    assert logs[0].times_s.tolist() == logs[1].times_s.tolist() != logs[2].times_s.tolist()
    for log in logs:
        assert 0 < len(log) < 25
        assert log.times_s.max() < 300.0


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (("--trigger", "timer"), InvalidArgument, "no calls of such functions"),
        (("--minute", "700", "--minutes", "9"), InvalidArgument, "no calls of such functions"),
        (("--out", "."), IsADirectoryError, "Is a directory"),
        (("--folder", "."), InvalidArgument, "exactly one source"),
    ],
)
def test_requests_that_cannot_be_made_are_refused_and_nothing_is_written(
    folder: Path, options: Sequence[str], kind: type[Exception], message: str
) -> None:
    done = make(*options)
    assert isinstance(done.exception, kind)
    assert message in str(done.exception)
    assert not list(folder.glob("*.txt"))
