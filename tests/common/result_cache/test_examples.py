"""The examples of the documents print the stated results."""

import pytest

from support.examples import example


def test_the_example_of_a_cache_serves_most_lookups_without_errors() -> None:
    said = example("approximate_keys").report()
    assert "2000 lookups: 1293 served" in said
    assert "wrong among the served: 0.0%" in said


@pytest.mark.system
def test_the_example_of_a_plan_keeps_its_target() -> None:
    said = example("plan_result_cache").report()
    assert said.endswith("at most 1% wrong: size 1000, back-off 1.1; 68% are inferred\n")


def test_the_example_of_a_budget_serves_half_and_keeps_near_it() -> None:
    said = example("error_budget").report(20_000)
    for line in said.splitlines()[1:]:
        _, served, wrong, *_, alarm = line.split()
        assert float(served.rstrip("%")) > 30
        assert float(wrong.rstrip("%")) < 3
        assert alarm == "False"
