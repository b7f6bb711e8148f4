"""Training the references of a data set."""

from pathlib import Path

import pytest

from nearsight.common.catalogue.reference_folder import Reference
from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.datasets.training import train_all, train_references
from support.pictures import picture_jpeg

SETTINGS = RecognitionSettings()


@pytest.fixture
def references(tmp_path: Path) -> list[Reference]:
    """An unreadable reference and a trainable one."""
    good, bad = tmp_path / "good.jpg", tmp_path / "bad.jpg"
    good.write_bytes(picture_jpeg(1))
    bad.write_bytes(b"no picture")
    return [Reference("bad", "Bad", (bad,)), Reference("good", "Good", (good,))]


def test_untrainable_references_are_named_and_the_others_are_trained(references: list[Reference]) -> None:
    told: list[int] = []
    models, failures = train_references(references, SETTINGS, told.append)
    assert [model.object_id for model in models] == ["good"]
    assert list(failures) == ["bad"]
    assert told == [1, 1]


def test_an_untrainable_reference_is_an_error_if_all_are_required(
    references: list[Reference],
) -> None:
    with pytest.raises(InvalidArgument):
        train_all(references, SETTINGS)
    assert [model.object_id for model in train_all(references[1:], SETTINGS)] == ["good"]
