"""The steps of a session, with simulated steps and devices."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from nearsight.common.errors import InternalError, NearsightError, SetupError, Unavailable
from nearsight.experiments.rig.processes import Place, Process
from nearsight.experiments.rig.rows import RECOGNIZED, RequestRow
from nearsight.experiments.rig.sequence import Tally, run_session

CLOUD_DIED = Unavailable("the cloud was ended by signal 9")


def row(number: int, outcomes: int = 1) -> RequestRow:
    return RequestRow("all", "ann", number, 0.0, 0.0, "mona", "mona", RECOGNIZED, outcomes, "edge", 20.0)


class Device(Process):
    """Reports two answers and its CPU time, then ends with a given error."""

    def __init__(self, calls: list[str], ends_with: NearsightError | None = None) -> None:
        self.name = "ann"
        self._calls = calls
        self._ends_with = ends_with

    @property
    def output(self) -> Iterator[str]:
        for by in ("edge", ""):
            yield json.dumps({"answered_by": by, "latency_ms": 20.0})
        yield json.dumps({"cpu_s": 1.5})

    def wait_ready(self, timeout_s: float = 60.0) -> dict[str, object]:
        self._calls.append("ready")
        return {}

    def wait(self, timeout_s: float) -> None:
        if self._ends_with:
            raise self._ends_with

    def write_line(self, line: str) -> None:
        self._calls.append(line)


class RecordedSteps:
    """Session steps that record the calls."""

    def __init__(
        self, *, fails_at: str = "", cloud_died: bool = False, rows: Sequence[RequestRow] = ()
    ) -> None:
        self.calls: list[str] = []
        self.device = Device(self.calls)
        self.requests = 2
        self.silence_s = 60.0
        self.check_period_s = -1.0  # with every event
        self.tally = Tally()
        self._fails_at = fails_at
        self._cloud_died = cloud_died
        self._rows = rows or (row(0), row(1))

    @contextmanager
    def up(self) -> Iterator[None]:
        self._step("up")
        try:
            yield
        finally:
            self._step("down")

    def warm_up(self) -> None:
        self._step("warm up")

    def start_devices(self) -> Sequence[Process]:
        self._step("devices")
        return [self.device]

    def begin(self) -> None:
        self._step("begin")

    def end(self) -> None:
        self._step("end")

    def check_tiers(self) -> None:
        if self._cloud_died:
            raise CLOUD_DIED

    def collect(self) -> tuple[Sequence[RequestRow], str]:
        self._step("collect")
        return self._rows, "facts"

    def _step(self, name: str) -> None:
        self.calls.append(name)
        if name == self._fails_at:
            raise SetupError(f"{name} failed")


def test_the_steps_of_a_session_are_called_in_order() -> None:
    steps = RecordedSteps()
    counts: list[int] = []
    rows, facts = run_session(steps, lambda tally: counts.append(tally.done))
    assert steps.calls == ["up", "warm up", "devices", "ready", "begin", "go", "end", "collect", "down"]
    assert (len(rows), facts, counts) == (2, "facts", [1, 2])
    assert (steps.tally.answered_by, steps.tally.failed, steps.tally.cpu_s) == ({"edge": 1}, 1, 1.5)


@pytest.mark.parametrize("step", ["warm up", "devices", "begin", "end"])
def test_the_error_names_the_dead_tier_and_not_the_step_that_failed_because_of_it(step: str) -> None:
    steps = RecordedSteps(fails_at=step, cloud_died=True)
    steps.check_period_s = math.inf
    with pytest.raises(Unavailable, match="the cloud was ended by signal 9"):
        run_session(steps)
    assert steps.calls[-1] == "down"


def test_the_error_of_a_step_is_raised_if_all_tiers_run() -> None:
    with pytest.raises(SetupError, match="devices failed"):
        run_session(RecordedSteps(fails_at="devices"))


def test_the_death_of_a_tier_ends_the_replay() -> None:
    steps = RecordedSteps(cloud_died=True)
    with pytest.raises(Unavailable, match="the cloud was ended by signal 9"):
        run_session(steps)
    assert "end" not in steps.calls
    assert steps.calls[-1] == "down"


def test_the_error_of_a_failed_device_is_raised() -> None:
    steps = RecordedSteps()
    steps.device = Device(steps.calls, SetupError("ann ended with exit status 1"))
    with pytest.raises(SetupError, match="ann ended with exit status 1"):
        run_session(steps)
    assert steps.calls[-1] == "down"


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ((row(0),), "1 of 2 requests have a row"),
        ((row(0), row(1, outcomes=2)), "request 1 of ann .* 2 outcomes"),
    ],
)
def test_missing_rows_and_second_outcomes_are_refused(rows: Sequence[RequestRow], error: str) -> None:
    with pytest.raises(InternalError, match=error):
        run_session(RecordedSteps(rows=rows))


def test_errors_of_a_remote_process_have_its_name_state_and_log() -> None:
    class Lab(Place):
        def order(self, command: str, /, **order: object) -> object:
            state = {"pid": 1, "log": "error: no disk", "cpu_s": 0.0, "memory_bytes": 0}
            return {**state, "running": order["name"] == "slow", "announced": None}

        def path(self, name: str) -> str:
            return f"there/{name}"

        def describe(self, daemon: str) -> str:
            return f"{daemon} on lab"

    with pytest.raises(
        SetupError, match=r"slow on lab was not ready within 1 s: .*no disk; its log is there/slow"
    ):
        Process(Lab(), "slow").wait_ready(1.0)
    with pytest.raises(SetupError, match="gone on lab ended before it was ready: error: no disk"):
        Process(Lab(), "gone").wait_ready(1.0)
    with pytest.raises(SetupError, match="slow on lab did not end within 1 s"):
        Process(Lab(), "slow").wait(1.0)
    Process(Lab(), "gone").wait(1.0)
