"""The soak test: laws of growth, and a short run."""

import json
from pathlib import Path

import pytest

from nearsight.__main__ import main
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
