"""The benchmark of robustness: its verdicts, and one attack on a real daemon."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from nearsight.__main__ import main
from nearsight.common.errors import NotFound
from nearsight.experiments.bench.attacks import many_scans_jpeg
from nearsight.experiments.bench.robustness import (
    MAX_ADDED_MIB,
    SCENARIOS,
    Scenario,
    for_table,
    select_scenarios,
    summary,
)

QUIET = {
    "sent": "much",
    "refused": "none",
    "broken": "",
    "ended": "",
    "quiet_mib": 100.0,
    "most_mib": 120.0,
    "more_threads": 0,
    "slower": 1.2,
    "recovery_s": 0.0,
    "photos": 40,
}


def row(*rounds: dict[str, Any], **scenario: Any) -> dict[str, Any]:
    return summary(Scenario("attack", lambda _: None, **scenario), [{**QUIET, **one} for one in rounds])


def test_an_attack_without_effect_reaches_all_targets() -> None:
    assert row({}) | {"rounds": ()} == {
        **{
            name: QUIET[name] for name in ("sent", "refused", "quiet_mib", "most_mib", "slower", "recovery_s")
        },
        **{"attack": "attack", "tier": "cloud", "curve": False, "slower_range": [1.2, 1.2], "photos": 40},
        **{"reached": True, "verdict": "reached", "rounds": ()},
    }


@pytest.mark.parametrize(
    ("worse", "verdict"),
    [
        ({"most_mib": 101.0 + MAX_ADDED_MIB}, f"{MAX_ADDED_MIB + 1:.0f} MiB of additional memory"),
        ({"slower": 3.1}, "others have 3.1 times the latency"),
        ({"recovery_s": 2.5}, "recovery takes 2.5 s"),
        ({"more_threads": 100}, "100 additional threads"),
        ({"ended": "the daemon ended"}, "the daemon ended"),
        ({"broken": "served a forbidden key"}, "served a forbidden key"),
        ({"photos": 0}, "no photos during the attack"),
    ],
)
def test_a_missed_target_is_named(worse: dict[str, Any], verdict: str) -> None:
    missed = row(worse)
    assert not missed["reached"]
    assert missed["verdict"] == f"MISSED: {verdict}"


def test_rounds_are_summarised_by_the_median_latency_and_the_maximum_memory() -> None:
    found = row({"slower": 9.0, "most_mib": 110.0}, {"slower": 1.0, "most_mib": 400.0}, {"slower": 1.5})
    assert (found["slower"], found["slower_range"], found["most_mib"]) == (1.5, [1.0, 9.0], 400.0)
    assert found["reached"]


def test_a_reason_of_several_rounds_does_not_hide_another() -> None:
    ended = {"ended": "the daemon ended"}
    missed = row(ended, ended, {"broken": "no metrics"})
    assert missed["verdict"] == "MISSED: the daemon ended; no metrics"


def test_additional_memory_is_that_of_one_round() -> None:
    large = {"quiet_mib": 100.0 + MAX_ADDED_MIB, "most_mib": 120.0 + MAX_ADDED_MIB}
    assert not row(large, {"most_mib": 101.0 + MAX_ADDED_MIB})["reached"]


def test_an_overload_by_honest_clients_may_increase_latencies() -> None:
    assert row({"slower": 20.0}, overload=True)["reached"]


def test_without_honest_clients_the_table_has_dashes_instead_of_latencies() -> None:
    waits = {"quiet_p95_ms": 20.0, "p95_ms": 50.0, "slower": 2.5, "answered": 0.5, "recovery_s": 1.0}
    names = ("p95 ms", "slowdown", "answered", "recovery s")
    asked, unasked = for_table(row(waits)), for_table(row({**waits, "photos": 0}, honest=False))
    assert [asked[name] for name in names] == ["20 → 50", "2.5", "50 %", "1.0"]
    assert [unasked[name] for name in names] == ["-"] * 4
    assert unasked["reached"]


def test_an_unknown_attack_is_refused_with_the_known_ones() -> None:
    assert select_scenarios([]) == SCENARIOS
    with pytest.raises(NotFound, match="no attack 'flood'") as raised:
        select_scenarios(["flood"])
    assert "frame-bomb" in raised.value.advice


def test_the_costly_image_is_a_small_jpeg_that_decodes() -> None:
    data = many_scans_jpeg(700, 500, scans=86)
    assert data.count(b"\xff\xda") == 86
    assert len(data) < 5_000
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE).shape == (500, 700)


@pytest.mark.system
def test_an_attack_on_a_real_daemon_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "robustness", "--only", "vanished-connections", "--json"]
    main([*command, "--museums", str(tmp_path / "museums"), "--out", str(tmp_path / "out")])
    (found,) = json.loads(capsys.readouterr().out)["rows"]
    assert found["sent"] == "300 connections that answer nothing"
    assert found["rounds"][0]["photos"] > 0
    assert found["rounds"][0]["most_descriptors"] > 300
    assert 0 < found["quiet_mib"] <= found["most_mib"]
