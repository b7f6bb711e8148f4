"""The registry finds experiments by the attributes of their classes."""

import subprocess
import sys
from pathlib import Path

import pytest

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.framework.registry import Entry, experiments, find_experiment, ordered

STUDY = '''
class Figure(Experiment):
    """What it shows.

    More about it.
    """

    name: ClassVar[str] = "{name}"
    source: ClassVar[str] = "A paper, 1.2"


class Base(Experiment):
    """No experiment: it has no name."""

    source: ClassVar[str] = "A paper, 1.2"
'''


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_in_the_list_can_be_found(name: str) -> None:
    entry, figure = experiments()[name], find_experiment(name)
    assert (figure.name, figure.source) == (name, entry.source)
    assert entry.shows


def test_an_unknown_experiment_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(NotFound, match=r"no experiment 'fig6\.33'; did you mean 'fig6\.3'\?"):
        find_experiment("fig6.33")
    with pytest.raises(NotFound, match="; `nearsight experiment list` lists all"):
        find_experiment("moon")


def test_an_experiment_in_a_new_file_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "studies" / "paper"
    folder.mkdir(parents=True)
    (folder / "fig1.py").write_text(STUDY.format(name="fig1"))
    assert experiments(tmp_path / "studies") == {
        "fig1": Entry("nearsight.experiments.studies.paper.fig1", "What it shows.", "A paper, 1.2")
    }


def test_two_experiments_of_one_name_are_refused(tmp_path: Path) -> None:
    for file in ("one", "two"):
        (tmp_path / f"{file}.py").write_text(STUDY.format(name="fig1"))
    with pytest.raises(InvalidArgument, match="fig1"):
        experiments(tmp_path)


def test_listing_imports_no_study_and_no_heavy_library() -> None:
    code = (
        "import sys; from nearsight.experiments.framework.registry import experiments; experiments();"
        "sys.exit([m for m in sys.modules if m in {'cv2', 'matplotlib'} or '.studies.' in m] or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def sources(**sources: str) -> dict[str, Entry]:
    return {name.replace("_", "."): Entry("", "", source) for name, source in sources.items()}


def test_experiments_are_sorted_by_section() -> None:
    found = ordered(
        sources(
            fig6_10="Cachier dissertation, 6.5",
            fig6_15="Cachier dissertation, 6.8",
            fig6_5="Cachier dissertation, 6.3",
            fig6_4="Cachier dissertation, 6.3",
            fig6_3="Cachier dissertation, 6.2.5.2",
            fig3_2="Cachier dissertation, 3.2",
        )
    )
    assert list(found) == ["fig3.2", "fig6.3", "fig6.4", "fig6.5", "fig6.10", "fig6.15"]


def test_experiments_beyond_a_section_or_chapter_follow_it() -> None:
    found = ordered(
        sources(
            guests="beyond the Cachier dissertation's chapter 3",
            crowd="beyond the Cachier dissertation's 3.3.2.2",
            multi="Cachier dissertation, 3.5.1",
            table="Cachier dissertation, 3.3.2.2",
        )
    )
    assert list(found) == ["table", "crowd", "multi", "guests"]


def test_papers_are_sorted_by_name() -> None:
    found = ordered(sources(a="DeepCache", b="CremeBrulee, 6.1 to 6.3", c="Cachier dissertation, 3.2"))
    assert [entry.place for entry in found.values()] == [
        ("Cachier dissertation", (3, 2)),
        ("CremeBrulee", (6, 1)),
        ("DeepCache", ()),
    ]
