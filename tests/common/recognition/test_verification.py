"""Verification: true views pass with the right corners; random and invalid matches do not."""

from unittest.mock import patch

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nearsight.common.recognition.classifiers.classifier import Candidate
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_image
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.recognition.verification import (
    CLEAR_INLIERS,
    Fit,
    confidence,
    is_plausible,
    log10_false_alarms,
    project_corners,
    verify,
)
from support.gallery import SETTINGS, SIDE, exhibit_model, photo_features
from support.pictures import picture

Indices = NDArray[np.int32]

NONE = np.empty(0, np.int32)
SQUARE = np.array([[100, 100], [300, 100], [300, 300], [100, 300]], float)


def verified(
    query: Features, seed: int, indices: Indices = NONE, view_indices: Indices | None = None
) -> RecognizedObject | None:
    """Verify a candidate that is the exhibit of this seed, with these correspondences as votes."""
    of_view = indices if view_indices is None else view_indices
    candidate = Candidate(f"exhibit-{seed}", 0, len(indices), indices, of_view)
    return verify(query, exhibit_model(seed), candidate, SETTINGS)


def agree(query: Features, view: Features, count: int) -> RecognizedObject | None:
    """Verify a candidate of which the first features correspond in order."""
    every = np.arange(count, dtype=np.int32)
    return verify(query, ObjectModel("one", "", (view,)), Candidate("one", 0, count, every, every), SETTINGS)


def scattered(rng: np.random.Generator, count: int) -> Features:
    """Features at random places, with random descriptors."""
    return Features(
        (rng.integers(0, 640 * 32, (count, 2)) / 32).astype(np.float32),
        rng.integers(0, 256, (count, 32)).astype(np.uint8),
        np.ones(count, np.float32),
        (640, 640),
        (640, 640),
    )


@pytest.mark.parametrize("count", [4, 5, 6, 7, 8, 10, 15, 30, 60, 120, 300])
def test_random_correspondences_are_never_verified(count: int) -> None:
    # With the rule "more than half are inliers" alone, 63 to 100 % pass for 4 to 7 correspondences.
    rng = np.random.default_rng(count)
    passed = 0
    for _ in range(60):
        passed += agree(scattered(rng, count), scattered(rng, count), count) is not None
    assert passed == 0


@pytest.mark.parametrize("turn", [0, 90, 180, 270, 33])
def test_the_corners_are_correct_also_for_a_rotated_object(turn: int) -> None:
    source = np.array([[0, 0], [SIDE, 0], [SIDE, SIDE], [0, SIDE]], np.float32)
    rotation = cv2.getRotationMatrix2D((SIDE / 2, SIDE / 2), turn, 0.8)
    target = cv2.transform(source[np.newaxis], rotation)[0] + np.float32([60, 60])
    target[2] += 15  # a little perspective
    homography = cv2.getPerspectiveTransform(source, target.astype(np.float32))
    photo = cv2.warpPerspective(picture(3, side=SIDE), homography, (440, 430), borderValue=(128, 128, 128))
    found = verified(extract_features(load_image(np.asarray(photo, np.uint8)), 500), 3)
    assert found is not None
    assert found.object_id == "exhibit-3"
    assert found.label == "Picture 3"
    assert found.metadata == {"seed": "3"}
    assert np.abs(np.array(found.corners) - target).max() < 6


def test_corners_are_in_coordinates_of_the_source_image() -> None:
    small = photo_features(1)
    large = Features(
        small.keypoints, small.descriptors, small.strengths, small.image_size, (small.image_size[0] * 3, 2000)
    )
    expected = np.array(verified(small, 1).corners) * [3, 2000 / small.image_size[1]]  # type: ignore[union-attr]
    assert np.allclose(verified(large, 1).corners, expected)  # type: ignore[union-attr]


def test_another_picture_and_a_mirrored_one_are_not_verified() -> None:
    assert verified(photo_features(1), 2) is None
    mirrored = np.ascontiguousarray(picture(1, side=SIDE)[:, ::-1])
    assert verified(extract_features(load_image(mirrored), 500), 1) is None


def test_matches_on_one_small_detail_are_not_verified() -> None:
    wall = np.full((SIDE, SIDE, 3), 128, np.uint8)
    detail = picture(1, side=SIDE)[100:150, 100:150]
    wall[100:150, 100:150] = detail
    assert verified(extract_features(load_image(wall), 500), 1) is None


@pytest.mark.parametrize(("features", "passes"), [(800, True), (2000, False)])
def test_a_shared_detail_is_verified_depending_on_its_share_of_the_features(
    features: int, passes: bool
) -> None:
    rng = np.random.default_rng(3)
    view, query = scattered(rng, 400), scattered(rng, features)
    query.keypoints[:16], query.descriptors[:16] = view.keypoints[:16], view.descriptors[:16]
    assert (agree(query, view, 16) is not None) == passes


def test_a_true_view_is_verified_despite_wrong_votes() -> None:
    wrong = np.arange(30, dtype=np.int32)
    assert verified(photo_features(4), 4, wrong, wrong[::-1]) is not None


def test_a_query_or_view_without_features_is_not_verified() -> None:
    assert verified(photo_features(1).strongest(0), 1) is None
    assert agree(photo_features(1), exhibit_model(1).views[0].strongest(1), 0) is None


@settings(max_examples=60)
@given(st.integers(1, 5000), st.integers(0, 5000))
def test_confidence_is_in_0_to_1_and_falls_with_a_closer_rival(inliers: int, rival: int) -> None:
    assert 0 < confidence(inliers, rival) <= 1
    assert confidence(inliers, rival) <= confidence(inliers, 0) <= confidence(inliers + 1, 0)


def test_false_alarms_follow_the_formula_of_the_paper() -> None:
    chance = np.pi * 25 / 1e6
    expected = (12 - 4) * 792 * 5 * chance ** (5 - 4)  # C(12, 5) = 792, C(5, 4) = 5
    assert log10_false_alarms(12, 5, 5.0, 1e6) == pytest.approx(np.log10(expected))
    assert log10_false_alarms(12, 4, 5.0, 1e6) == np.inf


@given(st.integers(5, 400), st.integers(5, 400))
def test_false_alarms_fall_with_inliers_and_rise_with_outliers(inliers: int, outliers: int) -> None:
    n = inliers + outliers
    assert log10_false_alarms(n, inliers + 1, 5, 640 * 480) < log10_false_alarms(n, inliers, 5, 640 * 480)
    assert log10_false_alarms(n + 1, inliers, 5, 640 * 480) > log10_false_alarms(n, inliers, 5, 640 * 480)


def test_a_photo_like_quadrilateral_is_plausible() -> None:
    assert is_plausible(SQUARE, (640, 480))
    assert is_plausible(SQUARE + np.array([[20, 5], [0, 0], [-30, 9], [10, 0]]), (640, 480))
    assert is_plausible(np.roll(SQUARE, 1, axis=0), (640, 480)), "turned by 90 degrees"
    assert is_plausible(SQUARE * 6 - 500, (640, 480)), "a close-up"


@pytest.mark.parametrize(
    "corners",
    [
        SQUARE[::-1],
        SQUARE[[0, 2, 1, 3]],
        SQUARE * [1, 0.01],
        SQUARE * 0.05,
        SQUARE * 100,
        SQUARE + 2000,
        np.full((4, 2), 7.0),
        np.array([[0, 0], [400, 190], [800, 200], [400, 210.0]]),
        np.array([[0, 0], [400, 0], [210, 300], [200, 300.0]]),
        np.array([[0, 0], [400, 0], [150, 100], [0, 400.0]]),
    ],
    ids=["mirrored", "crossed", "flat", "tiny", "huge", "outside", "point", "needle", "trapezium", "dented"],
)
def test_impossible_quadrilaterals_are_not_plausible(corners: np.ndarray) -> None:
    assert not is_plausible(corners, (640, 480))


def test_corners_behind_the_camera_are_not_projected() -> None:
    assert project_corners(np.array([[1, 0, 0], [0, 1, 0], [-0.01, 0, 1.0]]), (200, 100)) is None
    assert project_corners(np.full((3, 3), np.nan), (200, 100)) is None
    shifted = project_corners(np.array([[2, 0, 5], [0, 2, 7], [0, 0, 1.0]]) * -3, (10, 20))
    assert shifted is not None
    assert shifted.tolist() == [[5, 7], [25, 7], [25, 47], [5, 47]]


@settings(max_examples=150)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["equal", "line", "grid", "pairs", "corner"]),
    st.integers(10, 200),
)
def test_keypoints_chosen_by_an_attacker_are_not_verified(seed: int, layout: str, count: int) -> None:
    # The descriptors of the view at chosen places: every correspondence is "right".
    rng = np.random.default_rng(seed)
    view = exhibit_model(0).views[0].strongest(count)
    places = {
        "equal": np.full((count, 2), 100.0),
        "line": np.linspace([0, 0], [600, 300], count),
        "grid": np.stack([np.arange(count) % 5, np.arange(count) // 5], axis=1) * 3.0,
        "pairs": rng.integers(0, 2, (count, 2)) * 400.0,
        "corner": np.zeros((count, 2)),
    }
    query = Features(
        places[layout].astype(np.float32), view.descriptors, view.strengths, (640, 480), (640, 480)
    )
    assert verified(query, 0, rng.permutation(count).astype(np.int32)) is None


@given(st.data())
def test_the_matches_with_more_inliers_win_unless_the_votes_are_clear(data: st.DataObject) -> None:
    votes = data.draw(st.integers(0, 60))
    of_votes = data.draw(st.none() | st.integers(0, votes))
    again = data.draw(st.none() | st.integers(0, 60))
    indices = np.zeros(votes, np.int32)

    def fit(_query: object, _view: object, matches: tuple[Indices, Indices], _settings: object) -> Fit | None:
        """Both matchings give the drawn numbers of inliers; None: no homography."""
        inliers = of_votes if matches[0] is indices else again
        return Fit(SQUARE, inliers) if inliers is not None else None

    with patch("nearsight.common.recognition.verification._fit", fit):
        found = verified(photo_features(1), 1, indices)
    if of_votes is not None and of_votes >= CLEAR_INLIERS:
        expected = of_votes
    else:
        expected = max((one for one in (of_votes, again) if one is not None), default=None)
    assert (found.inliers if found is not None else None) == expected
