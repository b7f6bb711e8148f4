"""The similarity caches of figure 6: each finds near inputs, and answers nothing without near ones."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from nearsight.common.result_cache.approximations import prefix
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.studies.approximate_keys.similarity import keys, similarity_caches, vote
from nearsight.experiments.studies.approximate_keys.similarity_figure import Figure

NEEDS = {"FALCONN": "falconn", "lshashpy3": "similarity", "gptcache": "similarity"}
CACHES = [
    pytest.param(name, marks=[pytest.mark.needs(NEEDS[name])] if name in NEEDS else [])
    for name in similarity_caches(Path())
]


@pytest.mark.parametrize("name", CACHES)
def test_a_similarity_cache_answers_with_the_label_of_a_near_input(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    inputs, labels = 3 * rng.standard_normal((40, 100)), np.arange(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache = similarity_caches(tmp_path)[name][0](inputs, labels)
    try:
        assert [cache.lookup(x) for x in inputs[:20]] == [*range(20)]
        near = inputs[7] * (1 + 0.5 / np.linalg.norm(inputs[7]))
        assert cache.lookup(near) == 7
        assert cache.lookup(inputs[7] * 1.5) is None
        new = 3 * rng.standard_normal(100)
        assert cache.lookup(new) is None
        cache.insert(new, 0)
        if name not in ("BallTree", "FALCONN"):
            assert cache.lookup(new) == 0
    finally:
        cache.close()


def test_only_neighbours_within_epsilon_vote() -> None:
    neighbours = np.array([0.1, 0.2, 0.5, 3.0, 3.0, 3.0]), np.array([4, 5, 5, 9, 9, 9])
    assert [vote(neighbours, epsilon) for epsilon in (0.05, 0.15, 2.0, 5.0)] == [None, 4, 5, 9]


def test_a_cache_of_keys_holds_only_the_most_popular_ones() -> None:
    history = np.array([[1, 0], [1, 5], [1, 6], [2, 0], [2, 1], [3, 0]])
    cache = keys(prefix(1), AutoRefresh(3), history, [10, 10, 10, 20, 20, 30], size=2)
    assert [cache.lookup(x) for x in np.array([[1, 9], [3, 0]])] == [10, None]
    cache.learn(np.array([3, 0]), 30)
    assert cache.lookup(np.array([3, 1])) is None, "not one of the most popular keys"


def test_a_missing_library_has_a_row_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for library in ("falconn", "lshashpy3", "sqlalchemy"):
        monkeypatch.setitem(sys.modules, library, None)
    figure, options = Figure(), RunOptions(smoke=True)
    rows = [
        {name: str(value) for name, value in row.items()}
        for row in figure.run(options, **figure.cells(options)[0])
    ]
    metrics = figure.metrics(rows)
    assert set(metrics["sizes"]["100"]) == {"exact", "prefix(10)", "BallTree"}
    assert "make falconn" in metrics["not_measured"]["FALCONN"]
    assert "nearsight[similarity]" in metrics["not_measured"]["lshashpy3"]
    assert any("make falconn" in line["answered"] for line in figure.table(metrics))
