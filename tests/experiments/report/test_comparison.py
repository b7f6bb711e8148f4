import pytest

from nearsight.experiments.report.comparison import compare, number, paired

COLUMNS = ("visitors", "configuration", "p50 ms", "at the edge", "note")


def test_rows_are_matched_by_the_fewest_leading_columns_that_identify_them() -> None:
    testbed = (COLUMNS, [(1, "cloud", "100.0", "10 %", "x"), (1, "edge", "20.0 ± 1.0", "90 %", "y")])
    twin = (COLUMNS, [(1, "edge", "25.0", "87 %", "y"), (1, "cloud", "90.0", "10 %", "x")])
    found = compare(testbed, twin)
    assert found is not None
    assert (found.names, found.columns) == (("visitors", "configuration"), ("p50 ms", "at the edge"))
    errors = {name: [pair.error_in_words() for pair in pairs] for name, pairs in found.rows}
    assert errors == {("1", "cloud"): ["-10 %", "+0 points"], ("1", "edge"): ["+25 %", "-3 points"]}
    assert found.errors() == ["18 % to 25 %", "2 points to 3 points"]


def test_the_errors_of_shares_are_points_if_the_first_row_has_no_share() -> None:
    columns = ("configuration", "at the edge")
    testbed = (columns, [("only-cloud", "-"), ("bounded", "40 %"), ("prefetching", "50 %")])
    twin = (columns, [("only-cloud", "-"), ("bounded", "42 %"), ("prefetching", "56 %")])
    found = compare(testbed, twin)
    assert found is not None
    assert found.errors() == ["4 points to 6 points"]


def test_unmatched_rows_are_counted() -> None:
    found = compare((("n", "ms"), [(1, 10), (2, 20), (3, 30)]), (("n", "ms"), [(1, 10), (4, 40)]))
    assert found is not None
    assert [name for name, _ in found.rows] == [("1",)]
    assert found.lacking == "2 rows of the testbed, 1 rows of the twin"


@pytest.mark.parametrize(
    "twin",
    [
        (("n", "s"), [(1, 10)]),
        (("n", "ms"), [(2, 10)]),
        (("n", "ms"), [(1, "none")]),
        (("n", "ms"), [(1, 10), (1, 11)]),
        (("n", "ms"), []),
    ],
)
def test_tables_without_common_numbers_are_not_compared(twin: tuple[list[str], list[tuple[object]]]) -> None:
    assert compare((("n", "ms"), [(1, 10)]), twin) is None


def test_the_relative_error_of_zero_is_none() -> None:
    found = compare((("n", "ms", "s"), [(1, 0, 0)]), (("n", "ms", "s"), [(1, 5, 0)]))
    assert found is not None
    assert [pair.error for pair in found.rows[0][1]] == [None, 0.0]


def test_a_testbed_is_paired_with_a_twin_of_its_costs_and_options() -> None:
    testbed = {"on": "testbed", "seed": 1}
    twin = {"on": "twin", "costs": "testbed", "costs_mark": "3f", "seed": 1}
    others = ({**twin, "costs": "measured"}, {**twin, "seed": 2}, {**twin, "smoke": True})
    assert paired([twin, *others, testbed]) == [(4, 0)]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("12.3 ± 4", 12.3),
        ("≥ 29,244 ± 9", 29244.0),
        ("\u22120.5", -0.5),
        ("45 %", 45.0),
        ("none", None),
        ("", None),
    ],
)
def test_the_leading_number_of_a_table_cell_is_read(cell: str, expected: float | None) -> None:
    assert number(cell) == expected
