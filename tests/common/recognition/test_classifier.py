"""The ratio test, the votes and the sequential decision, on numbers chosen by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nearsight.common.recognition.classifiers.classifier import (
    DescriptorTable,
    Vote,
    unrelated_distance_bits,
)
from nearsight.common.recognition.classifiers.registry import build_classifier
from nearsight.common.recognition.models import TWIN
from nearsight.common.recognition.settings import RecognitionSettings
from support.objects import random_model

# Rows 0..39 are view 0 of a, 40..79 view 1 of a, 80..119 the view of b.
TABLE = DescriptorTable.of([random_model("a", 1, views=2), random_model("b", 2)])
A, A2, B = 0, 40, 80


@pytest.fixture
def one_vote_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsight.common.recognition.classifiers.classifier.MIN_VOTES", 1)


def vote(distances: list[list[int]], rows: list[list[int]], **settings: Any) -> Vote:
    counted = Vote(TABLE, RecognitionSettings(**settings))
    counted.count(0, (np.array(distances, np.int32), np.array(rows, np.int64)))
    return counted


def votes_of(counted: Vote) -> dict[tuple[str, int], int]:
    return {(one.object_id, one.view): one.votes for one in counted.candidates()}


@pytest.mark.usefixtures("one_vote_suffices")
def test_a_neighbour_votes_if_it_is_clearly_nearer_than_that_of_another_object() -> None:
    assert votes_of(vote([[20, 60]], [[A, B]])) == {("a", 0): 1}
    assert votes_of(vote([[55, 60]], [[A, B]])) == {}


@pytest.mark.usefixtures("one_vote_suffices")
def test_another_view_of_the_same_object_does_not_compete() -> None:
    assert votes_of(vote([[20, 21, 60]], [[A, A2, B]])) == {("a", 0): 1}


@pytest.mark.usefixtures("one_vote_suffices")
def test_twins_do_not_compete() -> None:
    twins = [replace(random_model("a", 1), rivals={"b": TWIN}), random_model("b", 2), random_model("c", 3)]
    table = DescriptorTable.of(twins)
    assert table.group_of_object[0] == table.group_of_object[1] != table.group_of_object[2]
    counted = Vote(table, RecognitionSettings())
    counted.count(0, (np.array([[20, 21], [20, 21]], np.int32), np.array([[0, 40], [0, 80]], np.int64)))
    (one,) = counted.candidates()  # only the first descriptor: the second is as near to another object
    assert (one.object_id, one.votes, one.query_indices.tolist()) == ("a", 1, [0])


def test_the_objects_most_alike_are_found_even_if_several_are_alike() -> None:
    one = random_model("a", 1, count=40)
    same = [replace(one, object_id=name) for name in ("b", "c")]
    classifier = build_classifier("exact", [*same, random_model("d", 2)])
    assert list(classifier.rounds(one.views[0])) == [()]  # no vote passes the ratio test
    assert set(classifier.most_alike(one.views[0], 2, "a")) == {("b", 0), ("c", 0)}
    assert classifier.most_alike(one.views[0], 2, "b") == (("c", 0),)
    assert len(classifier.most_alike(one.views[0], 1, "a")) == 1


@pytest.mark.usefixtures("one_vote_suffices")
def test_a_far_neighbour_never_votes() -> None:
    assert votes_of(vote([[81, 200]], [[A, B]])) == {}


@pytest.mark.usefixtures("one_vote_suffices")
def test_missing_neighbours_count_as_competitors_at_the_usual_distance() -> None:
    usual = int(unrelated_distance_bits(len(TABLE.descriptors)))
    assert votes_of(vote([[int(0.8 * usual), 2**31 - 1]], [[A, -1]])) == {("a", 0): 1}
    assert votes_of(vote([[int(0.9 * usual), 2**31 - 1]], [[A, -1]])) == {}
    assert votes_of(vote([[2**31 - 1, 2**31 - 1]], [[-1, -1]])) == {}


@pytest.mark.usefixtures("one_vote_suffices")
def test_a_feature_of_a_view_votes_once_with_its_most_distinctive_match() -> None:
    counted = vote([[30, 60], [10, 60], [20, 60]], [[A, B], [A, B], [A + 1, B]])
    (one,) = counted.candidates()
    assert one.votes == 2
    assert one.query_indices.tolist() == [1, 2]
    assert one.view_indices.tolist() == [0, 1]


def test_views_with_too_few_votes_are_not_candidates_and_their_number_is_limited() -> None:
    rows = [[A + i, B] for i in range(4)] + [[A2 + i, B] for i in range(2)] + [[B + i, A] for i in range(3)]
    neighbours = ([[9, 60]] * len(rows), rows)
    assert votes_of(vote(*neighbours)) == {("a", 0): 4, ("b", 0): 3}
    assert list(votes_of(vote(*neighbours, candidates=1))) == [("a", 0)]


def voted(most: int, next_most: int) -> Vote:
    rows = [[A + i % 40, B] for i in range(most)] + [[B + i % 40, A] for i in range(next_most)]
    return vote([[9, 60]] * len(rows), rows)


@pytest.mark.parametrize(
    ("most", "next_most", "decided"),
    [(9, 0, False), (10, 0, True), (10, 1, False), (20, 5, True), (20, 12, False)],
)
def test_a_lead_of_three_standard_deviations_is_decisive(most: int, next_most: int, decided: bool) -> None:
    assert voted(most, next_most).is_decided() is decided


def test_one_object_alone_can_lead() -> None:
    table = DescriptorTable.of([random_model("only")])
    counted = Vote(table, RecognitionSettings())
    counted.count(0, (np.full((12, 1), 9, np.int32), np.arange(12)[:, np.newaxis]))
    assert counted.is_decided()


def test_the_usual_distance_of_unrelated_descriptors_falls_with_their_number() -> None:
    distances = [unrelated_distance_bits(count) for count in (0, 1, 1000, 5000, 20_000, 126_000, 10**9)]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] == 70
    assert distances[-1] == 46


def crowd(votes: list[int]) -> list[str]:
    """Ids of the candidates among objects o0, o1, ... with these numbers of votes."""
    table = DescriptorTable.of([random_model(f"o{index}", index) for index in range(len(votes))])
    rows = [40 * index + i for index, count in enumerate(votes) for i in range(count)]
    counted = Vote(table, RecognitionSettings())
    counted.count(0, (np.full((len(rows), 1), 9, np.int32), np.array(rows)[:, np.newaxis]))
    return [one.object_id for one in counted.candidates()]


def test_in_a_small_catalogue_random_votes_give_no_candidates() -> None:
    assert crowd([9, 8, 10, 9, 7]) == []
    assert crowd([9, 30, 10, 9, 7]) == ["o1"]
    assert crowd([30, 30, 10, 9, 7]) == ["o0", "o1"], "two objects in one photo"


def test_among_very_few_objects_all_are_candidates() -> None:
    assert sorted(crowd([9, 8, 10])) == ["o0", "o1", "o2"]
    assert crowd([9]) == ["o0"]


def test_in_a_large_catalogue_three_votes_give_a_candidate() -> None:
    assert crowd([1, 0, 0, 3, 1, 0, 2, 0, 0, 0]) == ["o3"]
