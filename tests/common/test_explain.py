"""`nearsight explain`: a daemon's decision as a table and as JSON, silence, and nothing decided yet."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from nearsight.__main__ import main
from nearsight.common.caching.cache_size import CacheSizeOptimizer, LatencyTerms
from nearsight.common.caching.explanation import Explanation
from nearsight.common.caching.prefetch_decision import PrefetchDecision
from nearsight.common.explain import ExplanationService, ask_explanations, table_of
from nearsight.common.rpc.server import RpcServer, ServerSettings
from support.caching import zipf_ranking

DECISION = CacheSizeOptimizer(1.0 + 0.5 * np.arange(51), np.full(51, 0.9)).decide(
    zipf_ranking(50, 0.8), 100.0
)
EDGE = Explanation.of_cache_size(DECISION, "museum", 12.0, [("regret", "[2.1 ms]")])
TERMS = LatencyTerms(3, 12.5, 0.9, 0.4, 120.0, 89.3)
DEVICE = Explanation.of_prefetch(
    PrefetchDecision(3, 400, TERMS, ("a", "b", "c"), {(0, 200): TERMS}, "because"), "museum", 0.0, 20
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
    assert [int(row[1]) for row in rows] == sorted({*DECISION.alternatives, DECISION.k})
    assert all(row[-1].startswith("+") for row in rows if not row[0])


def test_a_person_reads_terms_objects_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(EDGE) as edge:
        assert main(["explain", edge, "--objects", "2"]) == 0
    shown = capsys.readouterr().out
    for text in ("museum", f"k = {DECISION.k}", "chosen", "expected ms", "regret: [2.1 ms]", "0, 1, and"):
        assert text in shown


def test_a_script_reads_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon(EDGE) as edge:
        assert main(["explain", edge, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    (decision,) = answer["decisions"]
    assert decision["chosen"]["k"] == DECISION.k
    assert decision["facts"] == {"regret": "[2.1 ms]"}
    assert len(decision["object_ids"]) == DECISION.k


def test_silence_and_daemons_that_decided_nothing_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon() as gone:
        pass
    with daemon() as edge:
        assert main(["explain", edge]) == 0
        assert "nothing decided yet" in capsys.readouterr().out
        assert main(["explain", edge, gone, "--timeout", "0.5"]) == 4
        assert "no answer" in capsys.readouterr().out
