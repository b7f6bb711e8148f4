"""`nearsight explain`: a daemon's decision as a table and as JSON, silence, and nothing decided yet."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nearsight.__main__ import main
from nearsight.common.object_cache.expected_latency import Explanation, LatencyTerms
from nearsight.common.operation.explain import ExplanationService, ask_explanations, table_of
from nearsight.common.rpc.server import RpcServer, ServerSettings

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


@contextmanager
def daemon(*explanations: Explanation) -> Iterator[str]:
    """A server with nothing but its explanations; its endpoint."""
    service = ExplanationService(lambda: explanations)
    with RpcServer([service], tier="edge", settings=ServerSettings()) as server:
        yield server.endpoint


def test_daemons_explain_their_decisions() -> None:
    with daemon(EDGE) as edge, daemon(DEVICE) as device:
        first, second = ask_explanations([edge, device], timeout_s=5)
    assert (first.decisions, second.decisions) == ((EDGE,), (DEVICE,))


def test_the_table_marks_the_choice_and_says_what_others_cost_more() -> None:
    rows = table_of(EDGE)
    assert [row[0] for row in rows].count("chosen") == 1
    assert [int(row[1]) for row in rows] == [0, 19, 20, 21]
    assert all(row[-1].startswith("+") for row in rows if not row[0])


def test_a_person_reads_terms_objects_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(EDGE) as edge:
        assert main(["explain", edge, "--objects", "2"]) == 0
    shown = capsys.readouterr().out
    for text in ("museum", "k = 20", "chosen", "expected ms", "regret: [2.1 ms]", "0, 1, and"):
        assert text in shown


def test_a_script_reads_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(EDGE) as edge:
        assert main(["explain", edge, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    (decision,) = answer["decisions"]
    assert decision["chosen"]["k"] == 20
    assert decision["facts"] == {"regret": "[2.1 ms]"}
    assert len(decision["object_ids"]) == 20


def test_silence_and_daemons_that_decided_nothing_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon() as gone:
        pass
    with daemon() as edge:
        assert main(["explain", edge]) == 0
        assert "nothing decided yet" in capsys.readouterr().out
        assert main(["explain", edge, gone, "--timeout", "0.5"]) == 4
        assert "no answer" in capsys.readouterr().out
