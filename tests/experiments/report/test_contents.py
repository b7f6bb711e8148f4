from nearsight.experiments.framework.registry import Entry
from nearsight.experiments.report.contents import Chapter, chapters


def entries(**sources: str) -> dict[str, Entry]:
    return {name.replace("_", "."): Entry("", "", source) for name, source in sources.items()}


def test_experiments_stand_in_the_order_of_their_sections() -> None:
    found = chapters(
        entries(
            fig6_10="Cachier dissertation, 6.5",
            fig6_15="Cachier dissertation, 6.8",
            fig6_4="Cachier dissertation, 6.3",
            fig6_5="Cachier dissertation, 6.3",
            fig6_3="Cachier dissertation, 6.2.5.2",
            fig3_2="Cachier dissertation, 3.2",
        )
    )
    assert found == (
        Chapter("Cachier dissertation, chapter 3", ("fig3.2",)),
        Chapter("Cachier dissertation, chapter 6", ("fig6.3", "fig6.4", "fig6.5", "fig6.10", "fig6.15")),
    )


def test_what_goes_beyond_a_section_or_chapter_stands_after_it() -> None:
    found = chapters(
        entries(
            guests="beyond the Cachier dissertation's chapter 3",
            crowd="beyond the Cachier dissertation's 3.3.2.2",
            multi="Cachier dissertation, 3.5.1",
            table="Cachier dissertation, 3.3.2.2",
        )
    )
    assert [chapter.experiments for chapter in found] == [("table", "crowd", "multi", "guests")]


def test_other_papers_follow_in_the_order_in_which_they_are_named() -> None:
    found = chapters(entries(a="Cachier dissertation, 3.2", b="CremeBrulee, 6.1 to 6.3", c="DeepCache"))
    assert [chapter.title for chapter in found] == [
        "Cachier dissertation, chapter 3",
        "CremeBrulee, chapter 6",
        "DeepCache",
    ]
