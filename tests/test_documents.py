"""Modules, links and experiments in documents exist, and the index lists every decision."""

import re
from pathlib import Path

import pytest

from nearsight.experiments.framework.registry import experiments

LAYERS = ("protos", "common", "cloud", "edge", "device", "experiments", "tests", "examples", "docs")
ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
MODULES = {path.name for layer in LAYERS for path in (ROOT / layer).rglob("*.*")}
DECISIONS = ROOT / "docs/decisions"

_CODE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|proto))`")
_EXPERIMENT = re.compile(r"nearsight experiment run ([\w.-]*\w)")
_BARE = re.compile(r"`([\w-]+\.(?:py|proto))`")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_files_that_a_document_names_exist(document: Path) -> None:
    text = document.read_text()
    places = [ROOT / name for name in _CODE.findall(text)]
    places += [document.parent / name for name in _LINK.findall(text)]
    missing = [str(place) for place in places if not place.exists()]
    assert missing + [name for name in _BARE.findall(text) if name not in MODULES] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_experiments_that_a_document_names_exist(document: Path) -> None:
    assert set(_EXPERIMENT.findall(document.read_text())) - {"NAME"} <= set(experiments())


def test_decisions_are_numbered_without_a_gap_and_the_index_has_each_with_its_title() -> None:
    files = sorted(DECISIONS.glob("[0-9]*.md"))
    assert [path.name[:3] for path in files] == [f"{number:03d}" for number in range(1, len(files) + 1)]
    index = (DECISIONS / "README.md").read_text()
    for path in files:
        number, _, title = path.read_text().partition("\n")[0].removeprefix("# ").partition(". ")
        assert f"| {number} | [{title}]({path.name}) |" in index
        assert path.name.startswith(number)
