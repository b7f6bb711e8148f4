import pytest

from nearsight.experiments.report.settings_of_runs import command, in_words
from support.small_results import OPTIONS


@pytest.mark.parametrize(
    ("options", "words", "typed"),
    [
        ({}, "seed 1", "nearsight experiment run queue"),
        ({"seed": 0}, "seed 0", "nearsight experiment run queue --seed 0"),
        ({"smoke": True}, "seed 1, smoke run", "nearsight experiment run queue --smoke"),
        (
            {"on": "twin", "costs": "paper", "costs_mark": "3f"},
            "twin, the paper's costs, seed 1",
            "nearsight experiment run queue --on twin --costs paper",
        ),
        (
            {"visits": "my stays.csv:f44c"},
            "seed 1, visitors my stays.csv",
            "nearsight experiment run queue --visits 'my stays.csv'",
        ),
        ({"replicas": 3}, "seed 1, replicas 3", "nearsight experiment run queue --replicas 3"),
    ],
)
def test_the_settings_of_a_run_are_a_text_and_a_command(
    options: dict[str, object], words: str, typed: str
) -> None:
    configuration = {**OPTIONS, **options}
    assert in_words(configuration) == words
    assert command("queue", configuration) == typed
