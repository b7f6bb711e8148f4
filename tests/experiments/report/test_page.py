"""The page as a browser reads it: complete, and without network."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nearsight.experiments.framework.experiment import Target
from nearsight.experiments.framework.registry import Entry
from nearsight.experiments.report.page import chapters, write_report
from support.small_results import ENTRIES, begin_run, write_result

_VOID = {"img", "input", "meta"}
_ENDS_A_PARAGRAPH = {"p", "div", "details", "table", "ul", "aside", "section"}


class Page(HTMLParser):
    """Text, links and open elements of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.links: list[str] = []
        self.ids: list[str] = []
        self.sources: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.links += [found["href"] or ""] if "href" in found else []
        self.ids += [found["id"] or ""] if "id" in found else []
        self.sources += [found["src"] or ""] if "src" in found else []
        assert tag not in _ENDS_A_PARAGRAPH or "p" not in self.open, f"{tag} inside of p"
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data.strip("\n")


def page_of(root: Path) -> Page:
    write_report(root, root / "report.html", ENTRIES)
    return Page((root / "report.html").read_text(encoding="utf-8"))


def section(page: Page, start: str, end: str = "") -> str:
    after = page.text.split(start, 1)[1]
    return after.split(end, 1)[0] if end else after


def test_the_page_loads_no_other_file(tmp_path: Path) -> None:
    write_result(tmp_path / "queue")
    page = page_of(tmp_path)
    assert page.open == []
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert page.sources
    assert all(source.startswith("data:image/png") for source in page.sources)
    assert "default-src 'none'" in (tmp_path / "report.html").read_text().replace("&#x27;", "'")


def test_every_link_within_the_page_has_a_target(tmp_path: Path) -> None:
    write_result(tmp_path / "queue")
    page = page_of(tmp_path)
    inner = {link[1:] for link in page.links if link.startswith("#")}
    assert inner <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_the_summary_lists_reached_and_missed_targets(tmp_path: Path) -> None:
    targets = (
        Target(text="near enough", value=0.25, reached=True),
        Target(text="fast enough", value=1234.5, reached=False),
    )
    write_result(tmp_path / "queue", targets=targets)
    write_result(tmp_path / "queue-seed2", options={"seed": 2}, targets=targets[:1])
    summary = section(page_of(tmp_path), "Summary", "Reached targets")
    assert "1 of 2 targets reached by 1 experiments" in summary
    assert "2 of 3 with 1 further results" in summary
    assert re.search(r"Missed targets \(1\).*fast enough.*1234", summary)


def test_a_target_that_two_experiments_share_counts_once(tmp_path: Path) -> None:
    targets = (Target(text="fast", value=1.0, reached=False, note="too many visitors"),)
    write_result(tmp_path / "queue", targets=targets)
    stored = write_result(tmp_path / "other", targets=targets)
    stored.keep_summary({**stored.summary(), "experiment": "other"})
    page = page_of(tmp_path)
    assert "0 of 1 targets reached by 2 experiments" in page.text
    assert "✗ missedotherqueuefasttoo many visitors1" in section(page, "Missed targets (1)")


def test_an_experiment_without_results_is_listed_with_its_command(tmp_path: Path) -> None:
    write_result(tmp_path / "queue")
    text = page_of(tmp_path).text
    before, found, after = text.partition("Not measured yet1 experiments")
    assert found
    assert "nearsight experiment run other" not in before
    assert "No results yet. To measure it, run nearsight experiment run other" in after


def test_a_smoke_run_is_marked_and_not_counted(tmp_path: Path) -> None:
    write_result(tmp_path / "queue-smoke", options={"smoke": True})
    text = page_of(tmp_path).text
    assert "There are only smoke runs" in text
    assert "smoke run: not judged" in text
    assert not re.search("missed|reached by", text)


def test_damaged_and_unfinished_folders_are_listed(tmp_path: Path) -> None:
    begin_run(tmp_path / "queue-seed2")
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue/run.json").write_text("{")
    text = page_of(tmp_path).text
    assert "queue-seed2: started; no part is finished" in text
    assert "queuerun.json is missing or damaged" in text


@pytest.mark.parametrize("metrics", [{"p99_s": 1}, {"p50_ms": {}}])
def test_metrics_of_another_version_are_reported(tmp_path: Path, metrics: dict[str, object]) -> None:
    stored = write_result(tmp_path / "queue")
    stored.keep_summary({**stored.summary(), "metrics": metrics})
    assert "The metrics were computed by another version" in page_of(tmp_path).text


def test_testbed_and_twin_are_compared_with_their_error(tmp_path: Path) -> None:
    write_result(tmp_path / "queue", options={"on": "twin", "costs": "testbed"}, p50_ms={"1": 11.0})
    write_result(tmp_path / "queue-testbed", options={"on": "testbed"}, p50_ms={"1": 10.0})
    page = page_of(tmp_path)
    assert "10.0 → 11.0 +10 %" in section(page, "Testbed and twin")
    assert len(page.sources) == 2


def test_a_testbed_is_not_compared_with_a_twin_of_other_machines(tmp_path: Path) -> None:
    write_result(tmp_path / "queue", options={"on": "twin", "costs": "measured"})
    write_result(tmp_path / "queue-testbed", options={"on": "testbed"})
    page = page_of(tmp_path)
    assert "are not compared here" in page.text
    assert len(page.sources) == 2


def test_machine_versions_and_options_are_shown(tmp_path: Path) -> None:
    write_result(tmp_path / "queue", options={"seed": 5})
    text = section(page_of(tmp_path), "Machine, versions, options")
    for expected in (
        "--seed 5",
        "Abacus 9000, 2 cores, 4.0 GiB",
        "2026-11-21 06:44 UTC",
        "0123456789ab, with uncommitted changes",
        "numpy2.4.6",
    ):
        assert expected in text


@pytest.mark.parametrize("where", ["text", "options"])
def test_texts_of_results_are_escaped(tmp_path: Path, where: str) -> None:
    evil = "<script>alert('x')</script>"
    targets = (Target(text=evil if where == "text" else "t", value=1.0, reached=False),)
    write_result(
        tmp_path / "queue", options={"data": f"{evil}:1"} if where == "options" else {}, targets=targets
    )
    page = page_of(tmp_path)
    assert evil in page.text
    assert "<script" not in (tmp_path / "report.html").read_text()


def test_experiments_are_grouped_by_chapters_of_their_papers() -> None:
    sources = {
        "fig3.2": "Cachier dissertation, 3.2",
        "guests": "beyond the Cachier dissertation's chapter 3",
        "fig6.3": "Cachier dissertation, 6.2.5.2",
        "reuse": "DeepCache",
    }
    assert chapters({name: Entry("", "", source) for name, source in sources.items()}) == {
        "Cachier dissertation, chapter 3": ["fig3.2", "guests"],
        "Cachier dissertation, chapter 6": ["fig6.3"],
        "DeepCache": ["reuse"],
    }
