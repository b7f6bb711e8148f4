import pytest

from nearsight.experiments.framework.registry import experiments
from nearsight.experiments.report.page import published


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_has_the_statement_of_its_paper(name: str) -> None:
    said = published()[name]
    assert said.where[0].isdigit()
    assert said.says


def test_a_table_of_the_paper_has_a_cell_for_every_column() -> None:
    tables = [said for said in published().values() if said.rows]
    assert tables
    assert all(len(row) == len(said.columns) for said in tables for row in said.rows)
