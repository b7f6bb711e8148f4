"""The quick start of the README: the edge answers the second photo of an exhibit."""

import json
import re
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.common.operation.status import ask_status
from support.daemon_process import daemon_process
from support.waiting import wait_until

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

README = Path(__file__).parents[1] / "README.md"


def test_the_second_visitor_of_an_exhibit_is_answered_by_the_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    setting = re.search(r"nearsight edge --cloud \S+ --set (\S+)", README.read_text(encoding="utf-8"))
    assert setting is not None
    assert main(["museum", "generate", "--objects", "100", "--out", "museum"]) == 0
    assert main(["cloud", "ingest", "museum", "--database", "cloud.db", "--catalogue", "museum"]) == 0
    with (
        daemon_process(tmp_path, "cloud", "--database", "cloud.db") as cloud,
        daemon_process(tmp_path, "link", cloud.endpoint) as link,
        daemon_process(tmp_path, "edge", "--cloud", link.endpoint, "--set", setting[1]) as edge,
    ):
        wait_until(lambda: ask_status([edge.endpoint], timeout_s=60)[0].ready, what="the edge")

        def ask(photo: str) -> tuple[str, str]:
            capsys.readouterr()
            arguments = ["--edge", edge.endpoint, "--timeout", "60", "--json"]
            assert main(["recognize", f"museum/queries/{photo}", *arguments]) == 0
            (entry,) = json.loads(capsys.readouterr().out)
            return entry["object_id"], entry["answered_by"]

        def held() -> bool:
            facts = dict(ask_status([edge.endpoint], timeout_s=60)[0].details)
            return facts.get("museum: cached objects", "").startswith("1 of 100, 1 requested")

        assert ask("0002_01.jpg") == ("0002", "cloud")
        wait_until(held, what="the exhibit in the cache")
        assert ask("0002_02.jpg") == ("0002", "edge")
