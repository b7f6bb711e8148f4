from nearsight.experiments.framework.registry import Entry
from nearsight.experiments.report.contents import Chapter, chapters


def test_experiments_stand_under_the_chapters_of_their_papers() -> None:
    sources = {
        "fig3.2": "Cachier dissertation, 3.2",
        "guests": "beyond the Cachier dissertation's chapter 3",
        "fig6.3": "Cachier dissertation, 6.2.5.2",
        "reuse": "DeepCache",
    }
    assert chapters({name: Entry("", "", source) for name, source in sources.items()}) == (
        Chapter("Cachier dissertation, chapter 3", ("fig3.2", "guests")),
        Chapter("Cachier dissertation, chapter 6", ("fig6.3",)),
        Chapter("DeepCache", ("reuse",)),
    )
