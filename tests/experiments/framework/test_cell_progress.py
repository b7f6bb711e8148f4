"""Progress of a long run: a bar on a terminal, one line per cell in a log."""

from io import StringIO

import pytest
from rich.console import Console

from nearsight.common.clock import ManualClock
from nearsight.experiments.framework.cell_progress import CellProgress, in_words


def test_the_log_has_a_line_per_cell_with_the_remaining_time() -> None:
    clock, text = ManualClock(), StringIO()
    progress = CellProgress("fig3.2", 5, 1, Console(file=text, width=30), clock=clock)
    for key, took_s in (("0-auto", 10.0), ("0-lsh", 30.0)):
        progress.begin(key)
        clock.advance(took_s)
        progress.finish()
    assert text.getvalue().splitlines() == [
        "fig3.2: 2/5, 0-auto took 10 s, about 30 s left",
        "fig3.2: 3/5, 0-lsh took 30 s, about 40 s left",
    ]


def test_the_line_of_the_last_cell_has_no_remaining_time() -> None:
    text = StringIO()
    progress = CellProgress("crowd", 1, 0, Console(file=text, width=200), clock=ManualClock())
    progress.begin("only")
    progress.finish()
    assert text.getvalue() == "crowd: 1/1, only\n"


@pytest.mark.parametrize(("seconds", "text"), [(7.6, "8 s"), (99.4, "99 s"), (754.0, "0:12:34")])
def test_times_are_formatted(seconds: float, text: str) -> None:
    assert in_words(seconds) == text


def test_the_remaining_time_decreases_during_a_cell_down_to_that_of_the_other_cells() -> None:
    clock = ManualClock()
    progress = CellProgress("lab", 3, 0, Console(file=StringIO()), clock=clock)
    progress.begin("first")
    progress.stage("replaying 60 s")
    assert progress.left() == "replaying 60 s"
    clock.advance(20.0)
    progress.finish()
    progress.begin("second")
    assert progress.left() == "about 40 s left"
    clock.advance(15.0)
    assert progress.left() == "about 25 s left"
    clock.advance(15.0)
    assert progress.left() == "about 20 s left"
