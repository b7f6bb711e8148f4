from pathlib import Path

from nearsight.experiments.report.collecting import Environment, Result, Target
from nearsight.experiments.report.distinct_targets import distinct_targets, reached_in_words


def result(experiment: str, *values: float, seed: int = 1, folder: str = "") -> Result:
    targets = tuple(Target(text="fast", value=value, reached=value < 1) for value in values)
    return Result(Path(folder or experiment), experiment, {"seed": seed}, Environment(), "", {}, targets)


def test_experiments_that_share_a_run_share_its_targets() -> None:
    shared = distinct_targets([result("fig6.4", 0.5), result("fig6.5", 0.5)])
    assert [(target.value, [one.experiment for one in results]) for target, results in shared] == [
        (0.5, ["fig6.4", "fig6.5"])
    ]


def test_other_values_other_options_and_other_runs_of_one_experiment_count_each() -> None:
    results = [
        result("fig6.4", 0.5),
        result("fig6.5", 1.5),
        result("fig6.6", 0.5, seed=2),
        result("fig6.4", 0.5, folder="fig6.4-again"),
    ]
    assert len(distinct_targets(results)) == 4
    assert reached_in_words(results) == "3 of 4"
