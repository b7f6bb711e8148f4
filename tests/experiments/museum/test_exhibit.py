"""Exhibits: determined by seed and index, of every kind, and distinguishable."""

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.recognition.extraction import extract_features, train_object
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.object_recognizer import ObjectRecognizer
from nearsight.common.recognition.settings import RecognitionSettings
from nearsight.experiments.museum.art.canvas import Canvas
from nearsight.experiments.museum.art.colours import draw_palette, fixed_palette
from nearsight.experiments.museum.art.exhibit import (
    LONGEST_SIDE,
    PLAIN,
    STYLES,
    SUBJECTS,
    describe_exhibit,
    render_reference,
)
from nearsight.experiments.museum.labels import catalogue_entry


def blank(seed: int) -> Canvas:
    rng = np.random.default_rng(seed)
    return Canvas(np.zeros((360, 480, 3), dtype=np.uint8), rng, draw_palette(rng))


def is_a_picture(image: np.ndarray) -> bool:
    return image.dtype == np.uint8 and image.shape == (360, 480, 3) and float(image.std()) > 5


@pytest.mark.parametrize("subject", [*SUBJECTS, *PLAIN])
def test_every_subject_can_be_drawn(subject: str) -> None:
    canvas = blank(7)
    draw = SUBJECTS[subject] if subject in SUBJECTS else PLAIN[subject][0]
    draw(canvas)
    assert is_a_picture(canvas.image)


@pytest.mark.parametrize("style", STYLES)
def test_every_style_makes_another_picture_of_the_same_subject(style: str) -> None:
    canvas = blank(3)
    SUBJECTS["village"](canvas)
    before = canvas.image.copy()
    after = STYLES[style](canvas)
    assert is_a_picture(after)
    assert (after != before).any()


@pytest.mark.parametrize("index", [0, 1, 17])
def test_a_picture_depends_on_seed_and_index(index: int) -> None:
    picture = render_reference(5, index)
    assert max(picture.shape[:2]) in range(LONGEST_SIDE - 1, LONGEST_SIDE + 1)
    assert np.array_equal(picture, render_reference(5, index))
    other_seed, other_index = render_reference(6, index), render_reference(5, index + 1)
    for other in (other_seed, other_index):
        assert other.shape != picture.shape or not np.array_equal(other, picture)


def test_a_museum_has_all_subjects_and_styles() -> None:
    exhibits = [describe_exhibit(1, index) for index in range(500)]
    assert {exhibit.subject for exhibit in exhibits} == {*SUBJECTS, *PLAIN}
    assert {exhibit.style for exhibit in exhibits} >= set(STYLES)
    assert len({(exhibit.subject, exhibit.style) for exhibit in exhibits}) > 150


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        render_reference(-1, 0)


@pytest.mark.system
def test_no_exhibit_is_recognised_as_another() -> None:
    settings = RecognitionSettings()
    models = [train_object(str(i), "", [render_reference(9, i)], settings) for i in range(40)]
    recognizer = ObjectRecognizer.build(models, settings)
    for index in range(40, 70):
        picture = load_image(render_reference(9, index), settings.limits)
        assert recognizer.recognize(extract_features(picture, settings.query_features)).found is None


def test_a_palette_is_sorted_from_dark_to_light() -> None:
    palette = fixed_palette("ffffff", "000000", "ff0000")
    assert palette.tone(0) == (0, 0, 0)
    assert palette.tone(1) == (255, 255, 255)
    assert palette.tone(0.5) == (0, 0, 255)
    assert palette.ramp(3).tolist() == [[0, 0, 0], [0, 0, 255], [255, 255, 255]]


def test_catalogue_entries_are_plausible_and_reproducible() -> None:
    entries = [catalogue_entry(1, index) for index in range(300)]
    assert entries == [catalogue_entry(1, index) for index in range(300)]
    assert all(entry.title and " " in entry.artist and 1200 < entry.year < 2000 for entry in entries)
    assert all("{" not in entry.title for entry in entries)
    assert len({(entry.title, entry.artist) for entry in entries}) == 300
