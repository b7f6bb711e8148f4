"""Reading of folders of results; damaged files do not end the report."""

import errno
from pathlib import Path

import pytest

from nearsight.common.errors import NotFound
from nearsight.experiments.framework.experiment import Target
from nearsight.experiments.report.collecting import (
    Collection,
    Environment,
    Result,
    Unusable,
    collect,
    distinct_targets,
    reached_in_words,
)
from support.small_results import ENTRIES, PNG, begin_run, write_result


def only_unusable(root: Path) -> Unusable:
    found = collect(root, ENTRIES)
    assert found.results == ()
    (one,) = found.unusable
    return one


def names(collection: Collection) -> list[str]:
    return [result.folder.name for result in collection.of("queue")]


def test_a_finished_run_is_read_with_options_targets_and_picture(tmp_path: Path) -> None:
    write_result(tmp_path / "queue", options={"seed": 2})
    (result,) = collect(tmp_path, ENTRIES).results
    assert (result.configuration["seed"], result.picture, result.problems) == (2, PNG, ())
    assert (result.reached, result.targets[0].text) == (1, "p50 below 100 ms")


def test_a_result_with_rows_of_other_environments_says_so(tmp_path: Path) -> None:
    stored = write_result(tmp_path / "queue")
    stored.keep_summary({**stored.summary(), "mixed": ["commit: a (2 rows), b (1 row)"]})
    (result,) = collect(tmp_path, ENTRIES).results
    (problem,) = result.problems
    assert problem.endswith("; commit: a (2 rows), b (1 row).")


def test_the_folder_with_the_name_of_the_experiment_is_first_and_smoke_runs_are_last(tmp_path: Path) -> None:
    for name in ("queue-seed10", "queue-seed2", "queue"):
        write_result(tmp_path / name)
    write_result(tmp_path / "another-smoke", options={"smoke": True})
    assert names(collect(tmp_path, ENTRIES)) == ["queue", "queue-seed2", "queue-seed10", "another-smoke"]


def test_an_interrupted_run_is_listed_with_the_command_that_continues_it(tmp_path: Path) -> None:
    begin_run(tmp_path / "queue", options={"seed": 3}).keep_cell("first", [{"ms": 1}])
    (tmp_path / "queue" / "cells" / ".second.17.new.json").write_text("[")  # killed while it was written
    one = only_unusable(tmp_path)
    assert one.why.startswith("stopped; finished parts: 1")
    assert one.command == f"nearsight experiment run queue --seed 3 --out {tmp_path / 'queue'}"


def test_a_run_without_summary_is_listed_with_the_command_that_computes_it(tmp_path: Path) -> None:
    write_result(tmp_path / "queue").summary_path.unlink()
    assert only_unusable(tmp_path).command == f"nearsight experiment plot queue --out {tmp_path / 'queue'}"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"experiment": "queue"}', "\xff"])
def test_a_damaged_summary_is_listed_with_the_command_that_repairs_it(tmp_path: Path, content: str) -> None:
    stored = write_result(tmp_path / "queue")
    stored.summary_path.write_bytes(content.encode("latin-1"))
    assert "damaged" in only_unusable(tmp_path).why
    assert " plot " in only_unusable(tmp_path).command
    stored.rows_path.unlink()
    assert only_unusable(tmp_path).command.endswith("--fresh")


def test_a_summary_with_values_of_another_kind_is_damaged(tmp_path: Path) -> None:
    stored = write_result(tmp_path / "queue")
    stored.keep_summary({**stored.summary(), "environment": {"versions": ["numpy"]}})
    assert "damaged" in only_unusable(tmp_path).why


def test_a_folder_without_readable_files_is_listed(tmp_path: Path) -> None:
    stored = write_result(tmp_path / "queue")
    for name in ("run.json", "summary.json"):
        (stored.path / name).write_text("{")
    assert only_unusable(tmp_path).experiment == ""


def test_a_folder_without_permission_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_result(tmp_path / "queue")

    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)  # tests of root have every permission
    assert only_unusable(tmp_path).why == "it cannot be read: Permission denied"


def test_results_of_an_unknown_experiment_are_listed(tmp_path: Path) -> None:
    write_result(tmp_path / "queue")
    found = collect(tmp_path, {"other": ENTRIES["other"]})
    assert [one.why for one in found.unusable_of("")] == ["this version has no experiment 'queue'"]


def test_numbers_are_read_without_picture_and_rows(tmp_path: Path) -> None:
    stored = write_result(tmp_path / "queue")
    (stored.path / "queue.png").write_bytes(b"no picture")
    stored.rows_path.unlink()
    (result,) = collect(tmp_path, ENTRIES).results
    assert result.picture == b""
    assert ["picture" in result.problems[0], "rows.csv" in result.problems[1]] == [True, True]


def test_other_folders_and_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "report.html").write_text("")
    assert collect(tmp_path, ENTRIES) == Collection(tmp_path, (), ())


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        collect(tmp_path / "gone", ENTRIES)
    assert "experiment run" in caught.value.advice


def result(experiment: str, *values: float, seed: int = 1, folder: str = "") -> Result:
    targets = tuple(Target(text="fast", value=value, reached=value < 1) for value in values)
    return Result(
        folder=Path(folder or experiment),
        experiment=experiment,
        configuration={"seed": seed},
        environment=Environment(),
        metrics={},
        targets=targets,
    )


def test_experiments_that_share_a_run_share_its_targets() -> None:
    shared = distinct_targets([result("fig6.4", 0.5), result("fig6.5", 0.5)])
    assert [(target.value, [one.experiment for one in results]) for target, results in shared] == [
        (0.5, ["fig6.4", "fig6.5"])
    ]


def test_targets_with_other_values_options_or_runs_count_separately() -> None:
    results = [
        result("fig6.4", 0.5),
        result("fig6.5", 1.5),
        result("fig6.6", 0.5, seed=2),
        result("fig6.4", 0.5, folder="fig6.4-again"),
    ]
    assert len(distinct_targets(results)) == 4
    assert reached_in_words(results) == "3 of 4"
