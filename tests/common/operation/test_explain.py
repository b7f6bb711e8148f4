"""`nearsight explain`: a daemon's decision as a table and as JSON, silence, and no decision yet."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from nearsight.__main__ import main
from nearsight.common.errors import InvalidMessage
from nearsight.common.object_cache.expected_latency import Explanation, LatencyTerms
from nearsight.common.operation.explain import (
    ExplanationService,
    ask_explanations,
    explanation_from_proto,
    explanation_to_proto,
    table_of,
)
from nearsight.common.operation.status import HealthService
from nearsight.common.rpc.server import RpcServer, ServerSettings
from nearsight.protos.explanation_pb2 import ExplainedDecision, LatencyTermsMessage
from support.rpc import unused_endpoint

EDGE = Explanation(
    "museum",
    12.0,
    LatencyTerms(20, 11.0, 0.9, 0.8, 100.0, 39.0),
    tuple(LatencyTerms(k, 1 + 0.5 * k, 0.9, 0.04 * k, 100.0, 40.0 + k) for k in (0, 19, 21)),
    50,
    "k=20: 39.00 ms",
    tuple(map(str, range(20))),
    (("regret", "[2.1 ms]"),),
)
DEVICE = Explanation(
    "museum",
    0.0,
    LatencyTerms(3, 12.5, 0.9, 0.4, 120.0, 89.3, 400),
    (LatencyTerms(0, 0.0, 1.0, 0.0, 120.0, 120.0, 200),),
    20,
    "because",
    ("a", "b", "c"),
)


def explain(*arguments: str) -> int:
    """The exit code of `nearsight explain` with a timeout for busy machines."""
    return main(["explain", *arguments, "--timeout", "60"])


@contextmanager
def daemon(*explanations: Explanation) -> Iterator[str]:
    """The endpoint of a server with only these explanations."""
    service = ExplanationService(lambda: explanations)
    with RpcServer([service], tier="edge", settings=ServerSettings()) as server:
        yield server.endpoint


def test_decisions_of_daemons_are_transmitted_completely() -> None:
    with daemon(EDGE) as edge, daemon(DEVICE) as device:
        first, second = ask_explanations([edge, device], timeout_s=60)
    assert (first.decisions, second.decisions) == ((EDGE,), (DEVICE,))


def test_the_table_marks_the_choice_and_shows_the_additional_cost_of_others() -> None:
    columns, rows = table_of(EDGE)
    assert "features" not in columns
    assert [row[0] for row in rows].count("*") == 1
    assert [int(row[1]) for row in rows] == [0, 19, 20, 21]
    assert all(row[-1].startswith("+") for row in rows if not row[0])
    assert "features" in table_of(DEVICE)[0]


@pytest.mark.parametrize("decision", [EDGE, DEVICE], ids=["edge", "device"])
def test_an_explanation_fits_80_columns_with_every_heading_whole(
    decision: Explanation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    long = replace(decision, why="because " * 30, facts=(("load", "much of it, " * 20),))
    with daemon(long) as endpoint:
        assert explain(endpoint) == 0
    shown = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, shown.splitlines())) <= 80
    for heading in table_of(decision)[0]:
        assert all(word in shown for word in heading.split())


def test_the_text_output_shows_terms_objects_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(EDGE) as edge:
        assert explain(edge, "--objects", "2") == 0
    shown = capsys.readouterr().out
    for text in ("museum", "k = 20", "*", "expected ms", "regret: [2.1 ms]", "0, 1, and"):
        assert text in shown


def test_the_json_output_has_terms_objects_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(EDGE) as edge:
        assert explain(edge, "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)
    (decision,) = answer["decisions"]
    assert decision["chosen"]["k"] == 20
    assert decision["facts"] == {"regret": "[2.1 ms]"}
    assert len(decision["object_ids"]) == 20


def test_absent_daemons_and_daemons_without_a_decision_are_distinguished(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with daemon() as edge:
        assert explain(edge) == 0
        assert "no decision yet" in capsys.readouterr().out
        assert explain(edge, unused_endpoint()) == 4
        assert "no answer" in capsys.readouterr().out


def test_for_a_daemon_without_a_cache_the_advice_names_the_daemons_with_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    health = HealthService("cloud", lambda: True)
    with RpcServer([health], tier="cloud", settings=ServerSettings()) as cloud:
        assert explain(cloud.endpoint) == 4
    assert "name an edge or a device" in capsys.readouterr().out


def test_control_characters_of_a_decision_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = replace(EDGE, object_ids=("a\x1b[2J",), why="\r\x9b31m", facts=(("b\x07", "c\x1b]0;t\x07"),))
    with daemon(replace(bad, catalogue="m\x1b[1m")) as edge:
        assert explain(edge) == 0
        assert explain(edge, "--json") == 0
    assert not set("\x1b\r\x9b\x07") & set(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("field", "value"),
    [("lookup_ms", math.nan), ("miss_ms", -1.0), ("expected_ms", math.inf), ("recall", 1.5)],
)
def test_a_decision_with_impossible_numbers_is_refused(field: str, value: float) -> None:
    message = explanation_to_proto(Explanation("museum", 0.0, DEVICE.chosen))
    setattr(message.chosen, field, value)
    with pytest.raises(InvalidMessage, match=field):
        explanation_from_proto(message)


def test_a_decision_without_a_choice_or_from_the_future_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="chosen"):
        explanation_from_proto(ExplainedDecision())
    with pytest.raises(InvalidMessage, match="old"):
        explanation_from_proto(ExplainedDecision(chosen=LatencyTermsMessage(), age_s=-1))
