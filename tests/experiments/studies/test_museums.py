"""The data set of an experiment: generated once, or given by the user."""

from pathlib import Path

import pytest

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.framework.experiment import RunOptions
from nearsight.experiments.framework.registry import find_experiment
from nearsight.experiments.framework.running import prepare
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.studies.museums import dataset_of, museum_folder

SETTINGS = MuseumSettings(objects=2, photos_per_object=1, unknown_photos=1)


def test_a_museum_is_generated_once(tmp_path: Path) -> None:
    options = RunOptions(museums=tmp_path / "museums")
    first = dataset_of(options, SETTINGS)
    assert (len(first.references), len(first.queries)) == (2, 3)
    mark = museum_folder(options.museums, SETTINGS) / "museum.json"
    written = mark.stat().st_mtime_ns
    assert dataset_of(options, SETTINGS) == first
    assert mark.stat().st_mtime_ns == written


def test_a_given_data_set_is_used_and_is_part_of_the_configuration(tmp_path: Path) -> None:
    dataset_of(RunOptions(museums=tmp_path), SETTINGS)
    own = museum_folder(tmp_path, SETTINGS)
    options = RunOptions(data=own, museums=tmp_path / "none")
    assert len(dataset_of(options, MuseumSettings()).references) == 2
    before = options.configuration()["data"]
    assert before != RunOptions().configuration()["data"]
    (own / ".nearsight.db").touch()  # the trained index of a recognizer
    assert options.configuration()["data"] == before
    labels = own / "labels.csv"
    content = labels.read_bytes()
    labels.write_bytes(content[:-2] + content[-1:] + content[-2:-1])  # of the same size
    assert options.configuration()["data"] != before


def test_a_missing_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="gone"):
        prepare(find_experiment("fig3.4"), RunOptions(data=tmp_path / "gone"), tmp_path / "out")


@pytest.mark.parametrize("name", ["fig3.4", "fig4.4", "cache-answers"])
def test_an_unusable_data_set_replaces_no_results(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    earlier = tmp_path / "out" / "rows.csv"
    earlier.touch()
    (tmp_path / "data").mkdir()
    with pytest.raises(NotFound, match="no known data set"):
        prepare(find_experiment(name), RunOptions(data=tmp_path / "data"), tmp_path / "out", fresh=True)
    assert earlier.exists()


def test_a_data_set_for_an_experiment_that_uses_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="does not use --data"):
        prepare(find_experiment("fig6.3"), RunOptions(data=tmp_path), tmp_path / "out")
