"""The soak test: laws of growth, and a short run."""

import json
import random
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from nearsight.__main__ import main
from nearsight.common.clock import ManualClock
from nearsight.experiments.bench import soak
from nearsight.experiments.bench.soak import growth_laws


@pytest.mark.parametrize(("seconds", "verdict"), [(60, "reached"), (240, "MISSED")])
def test_growing_memory_is_judged_in_runs_that_are_long_enough(seconds: int, verdict: str) -> None:
    used = [(float(at_s), 100.0 + 60.0 * (at_s > seconds * 0.7), 40.0, 10.0) for at_s in range(seconds)]
    (law,) = growth_laws({("edge", 1): list(used)}, seconds / 2)
    assert (law["found"], law["verdict"]) == (
        "100 → 160 MiB, 40 → 40 descriptors, 10 → 10 threads",
        verdict,
    )


def test_growing_descriptors_are_judged_in_short_runs() -> None:
    used = [(float(at_s), 100.0, 40.0 + at_s, 10.0) for at_s in range(60)]
    (law,) = growth_laws({("edge", 1): list(used)}, 30.0)
    assert law["verdict"] == "MISSED"


class SlowSoak(soak._Soak):
    """Processes of which each takes 12 s to start; only the time of the run is simulated."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._rng = random.Random(1)
        self._listen = {"cloud": "", "edge": ""}
        self._began_s = clock.monotonic()
        self._half_s = self._began_s + 15.0
        self.events = []

    def flat_s(self) -> float:
        """Length of the second half of a run of 30 s."""
        self._run_events(30.0, lambda _step: None)
        return self._clock.monotonic() - self._half_s

    def _restart(self, tier: str, *, kill: bool) -> None:
        self._clock.advance(12.0)

    def _wait_and_check(self, seconds: float) -> None:
        self._clock.advance(max(0.0, seconds))

    def _change_catalogue(self) -> None:
        pass

    _burst = _kill_application = _change_catalogue


def test_the_second_half_of_a_short_run_on_a_slow_machine_is_long_enough_for_its_laws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(soak, "time", SimpleNamespace(monotonic=clock.monotonic))
    slow = SlowSoak(clock)
    assert slow.flat_s() >= 9.0
    assert {name for _, name, _ in slow.events} >= {"kill edge", "restart cloud"}


def test_the_seed_decides_the_photos_of_applications(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[str] = []
    monkeypatch.setattr(soak, "Application", lambda *given: seeds.append(given[3]))
    dataset = SimpleNamespace(references=(), queries=())
    for seed in (1, 1, 2):
        with ExitStack() as stack:
            one = soak._Soak(SimpleNamespace(dataset=dataset, database=None), seed, tmp_path, stack)
            one._start_application("application 1")
    assert seeds[0] == seeds[1] != seeds[2]


@pytest.mark.system
@pytest.mark.timeout(600)
def test_all_laws_hold_in_a_minute_of_kills_restarts_changes_and_bursts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["bench", "soak", "--minutes", "1", "--museums", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0, [row for row in found["rows"] if not row["reached"]]
    assert {name for _, name, _ in found["events"]} >= {"kill edge", "kill cloud"}
    assert found["outcomes"]["known"] > 0
