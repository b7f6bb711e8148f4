"""Evidence: the verified model confirms correct answers only; its formula against exact sums."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.device.adaptation.evidence import evidence_for, log10_tail
from support.adaptation import RULES, recognized
from support.gallery import exhibit_model, photo_features


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_verified_model_confirms_correct_answers_only(seed: int) -> None:
    right = evidence_for(photo_features(seed), exhibit_model(seed), recognized(seed), RULES)
    assert right.log10_false_alarms < -20
    wrong = evidence_for(photo_features(seed), exhibit_model(seed + 1), recognized(seed), RULES)
    assert wrong.log10_false_alarms > 5


def test_each_feature_agrees_at_most_once_the_most_similar_first() -> None:
    seen = evidence_for(photo_features(1), exhibit_model(1), recognized(1), RULES).agreement
    assert len(set(seen.query.tolist())) == len(seen.query) == len(seen.bits)
    assert len(set(seen.view.tolist())) == len(seen.view)
    assert (seen.bits[1:] >= seen.bits[:-1]).all()
    assert seen.bits.max() <= RULES.max_bits


def test_corners_that_are_somewhat_off_are_put_right() -> None:
    found = recognized(1)
    exact = evidence_for(photo_features(1), exhibit_model(1), found, RULES)
    off = replace(found, corners=tuple((x + 6.0, y - 4.0) for x, y in found.corners))
    corrected = evidence_for(photo_features(1), exhibit_model(1), off, RULES)
    assert len(corrected.agreement.bits) == pytest.approx(len(exact.agreement.bits), rel=0.1)


def test_a_model_of_several_views_is_asked_for_the_one_that_is_seen() -> None:
    other, shown = exhibit_model(2), exhibit_model(1)
    both = replace(shown, views=(*other.views, *shown.views))
    assert evidence_for(photo_features(1), both, recognized(1), RULES).view == 1


@given(st.integers(1, 400), st.floats(1e-5, 0.3), st.data())
def test_the_tail_is_bounded_from_above_and_closely(trials: int, chance: float, data: st.DataObject) -> None:
    least = data.draw(st.integers(0, trials))
    exact = log10_binomial_tail(trials, least, chance)
    bound = log10_tail(trials, least, chance)
    assert bound <= 0
    assert bound >= exact - 1e-6
    if least > 2 * trials * chance + 1:
        assert bound <= exact + 0.5


def log10_binomial_tail(trials: int, least: int, chance: float) -> float:
    """The exact sum, in logarithms: some of its terms are too small for a float."""
    terms = [
        math.log(math.comb(trials, k)) + k * math.log(chance) + (trials - k) * math.log1p(-chance)
        for k in range(least, trials + 1)
    ]
    largest = max(terms)
    return (largest + math.log(math.fsum(math.exp(term - largest) for term in terms))) / math.log(10)
