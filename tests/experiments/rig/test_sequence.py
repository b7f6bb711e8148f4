"""The steps of a session, with simulated steps and devices."""

from __future__ import annotations

import json
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
    """Reports two answers and its CPU time, and ends as given."""

    def __init__(self, course: list[str], ends_with: NearsightError | None = None) -> None:
        self.name = "ann"
        self._course = course
        self._ends_with = ends_with

    @property
    def output(self) -> Iterator[str]:
        for said in ({"answered_by": "edge", "latency_ms": 20.0}, {"answered_by": ""}, {"cpu_s": 1.5}):
            yield json.dumps(said)

    def wait_ready(self, timeout_s: float = 60.0) -> dict[str, object]:
        self._course.append("ready")
        return {}

    def wait(self, timeout_s: float) -> None:
        if self._ends_with:
            raise self._ends_with

    def write_line(self, line: str) -> None:
        self._course.append(line)


class Rehearsal:
    """Session steps that record the calls."""

    def __init__(
        self, *, fails_at: str = "", cloud_died: bool = False, rows: Sequence[RequestRow] = ()
    ) -> None:
        self.course: list[str] = []
        self.device = Device(self.course)
        self.requests = 2
        self.silence_s = 60.0
        self.check_period_s = 0.0
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
        self.course.append(name)
        if name == self._fails_at:
            raise SetupError(f"{name} failed")


def test_a_session_is_told_in_one_order_wherever_it_is() -> None:
    stage = Rehearsal()
    told: list[int] = []
    rows, facts = run_session(stage, lambda tally: told.append(tally.done))
    assert stage.course == ["up", "warm up", "devices", "ready", "begin", "go", "end", "collect", "down"]
    assert (len(rows), facts, told) == (2, "facts", [1, 2])
    assert (stage.tally.answered_by, stage.tally.failed, stage.tally.cpu_s) == ({"edge": 1}, 1, 1.5)


@pytest.mark.parametrize("step", ["warm up", "devices"])
def test_a_tier_that_died_is_named_before_what_failed_without_it(step: str) -> None:
    stage = Rehearsal(fails_at=step, cloud_died=True)
    with pytest.raises(Unavailable, match="the cloud was ended by signal 9"):
        run_session(stage)
    assert stage.course[-1] == "down"


def test_what_fails_while_all_tiers_run_is_told_itself() -> None:
    with pytest.raises(SetupError, match="devices failed"):
        run_session(Rehearsal(fails_at="devices"))


def test_a_tier_that_dies_during_the_replay_ends_it() -> None:
    stage = Rehearsal(cloud_died=True)
    with pytest.raises(Unavailable, match="the cloud was ended by signal 9"):
        run_session(stage)
    assert "end" not in stage.course
    assert stage.course[-1] == "down"


def test_a_device_that_ends_badly_is_named() -> None:
    stage = Rehearsal()
    stage.device = Device(stage.course, SetupError("ann ended with exit status 1"))
    with pytest.raises(SetupError, match="ann ended with exit status 1"):
        run_session(stage)
    assert stage.course[-1] == "down"


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ((row(0),), "1 of 2 requests have a row"),
        ((row(0), row(1, outcomes=2)), "request 1 of ann .* 2 outcomes"),
    ],
)
def test_rows_that_do_not_add_up_are_not_kept(rows: Sequence[RequestRow], complaint: str) -> None:
    with pytest.raises(InternalError, match=complaint):
        run_session(Rehearsal(rows=rows))


def test_a_place_is_told_what_to_do_with_a_process_by_its_name() -> None:
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
