"""The contract of all classifier backends."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nearsight.common.errors import ConfigurationError, MissingDependency
from nearsight.common.recognition.classifiers.classifier import MAX_DISTANCE_BITS, Candidate, Classifier
from nearsight.common.recognition.classifiers.faiss_backends import choose_key_bits, key_length, permute_bits
from nearsight.common.recognition.classifiers.registry import (
    EXACT_UP_TO_DESCRIPTORS,
    backend_names,
    build_classifier,
)
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.settings import RecognitionSettings
from support.gallery import exhibit_model, exhibit_models, photo_features
from support.objects import random_features, random_model

OBJECTS = 12


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.needs("falconn")] if name == "falconn" else [])
        for name in backend_names()
    ]
)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def same_candidates(first: tuple, second: tuple) -> bool:
    return len(first) == len(second) and all(
        (a.object_id, a.view, a.votes) == (b.object_id, b.view, b.votes)
        and np.array_equal(a.query_indices, b.query_indices)
        and np.array_equal(a.view_indices, b.view_indices)
        for a, b in zip(first, second, strict=True)
    )


def match(classifier: Classifier, query: Features) -> tuple[Candidate, ...]:
    """The candidates of the first decision."""
    return next(classifier.rounds(query), ())


class TestEveryBackend:
    def test_the_object_in_the_photo_gets_the_most_votes(self, backend: str) -> None:
        classifier = build_classifier(backend, exhibit_models(OBJECTS))
        for seed in range(4):
            candidates = match(classifier, photo_features(seed))
            assert candidates[0].object_id == f"exhibit-{seed}"
            assert candidates[0].votes >= 10
            assert [one.votes for one in candidates] == sorted((o.votes for o in candidates), reverse=True)

    def test_correspondences_point_into_the_query_and_the_view(self, backend: str) -> None:
        classifier = build_classifier(backend, exhibit_models(OBJECTS), RecognitionSettings(early_stop=False))
        query = photo_features(1)
        for one in match(classifier, query):
            view = exhibit_model(int(one.object_id.removeprefix("exhibit-"))).views[one.view]
            assert len(one.query_indices) == len(one.view_indices) == one.votes
            assert one.query_indices.max() < len(query)
            assert one.view_indices.max() < len(view)
            assert len(np.unique(one.view_indices)) == one.votes, "a feature of a view votes once"
            distance = np.bitwise_count(
                query.descriptors[one.query_indices] ^ view.descriptors[one.view_indices]
            )
            assert distance.sum(axis=1).max() <= MAX_DISTANCE_BITS

    def test_most_correspondences_are_those_of_exact_search(self, backend: str) -> None:
        settings = RecognitionSettings(early_stop=False)
        exact = match(build_classifier("exact", exhibit_models(OBJECTS), settings), photo_features(2))[0]
        found = match(build_classifier(backend, exhibit_models(OBJECTS), settings), photo_features(2))[0]
        pairs = set(zip(exact.query_indices.tolist(), exact.view_indices.tolist(), strict=True))
        same = pairs & set(zip(found.query_indices.tolist(), found.view_indices.tolist(), strict=True))
        least = 0.4 if backend == "smallhash" else 0.6  # finds fewer, to save memory
        assert len(same) >= least * len(pairs)

    def test_without_objects_there_are_no_candidates(self, backend: str) -> None:
        classifier = build_classifier(backend, [])
        assert match(classifier, photo_features(0)) == ()

    def test_a_single_object_is_distinguished_from_noise(self, backend: str) -> None:
        classifier = build_classifier(backend, exhibit_models(1), RecognitionSettings(early_stop=False))
        relevant = match(classifier, photo_features(0))[0].votes
        noise = sum(one.votes for one in match(classifier, random_features(7, 500)))
        assert relevant >= 20
        assert noise <= 3

    def test_views_of_one_object_do_not_compete(self, backend: str) -> None:
        twice = ObjectModel("twice", "", exhibit_model(3).views * 3)
        classifier = build_classifier(backend, [twice, *exhibit_models(3)])
        assert match(classifier, photo_features(3))[0].object_id == "twice"

    def test_a_model_with_fewer_descriptors_than_requested_neighbours_is_accepted(self, backend: str) -> None:
        classifier = build_classifier(backend, [random_model("tiny", count=1)])
        match(classifier, photo_features(0))

    def test_the_same_query_gives_the_same_candidates(self, backend: str) -> None:
        models = exhibit_models(OBJECTS)
        first, second = build_classifier(backend, models), build_classifier(backend, models)
        answers = [match(one, photo_features(5)) for one in (first, first, second)]
        assert same_candidates(answers[0], answers[1])
        if backend != "flann-lsh":  # see there
            assert same_candidates(answers[0], answers[2])

    def test_threads_share_one_classifier(self, backend: str) -> None:
        classifier = build_classifier(backend, exhibit_models(OBJECTS))
        expected = [match(classifier, photo_features(seed)) for seed in range(4)]
        barrier = threading.Barrier(4)

        def ask(seed: int) -> bool:
            barrier.wait(timeout=60)
            return all(
                same_candidates(match(classifier, photo_features(seed)), expected[seed]) for _ in range(3)
            )

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(ask, range(4)))


def test_the_error_for_an_unknown_backend_lists_the_existing_ones() -> None:
    with pytest.raises(ConfigurationError, match="multihash"):
        build_classifier("kd-tree", [])


def test_a_backend_without_its_library_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "falconn", None)
    with pytest.raises(MissingDependency) as caught:
        build_classifier("falconn", exhibit_models(1))
    assert "make falconn" in caught.value.advice


def test_auto_is_exact_search_for_few_descriptors_and_hashing_for_more() -> None:
    few = [random_model("a", count=EXACT_UP_TO_DESCRIPTORS)]
    assert build_classifier("auto", few).name == "exact"
    assert build_classifier("auto", [*few, random_model("b", count=1)]).name == "multihash"


class Counting(Classifier):
    """Exact search that counts the looked-up descriptors."""

    name = "counting"

    def __init__(self, models: list[ObjectModel], settings: RecognitionSettings) -> None:
        super().__init__(models, settings)
        self._inner = build_classifier("exact", models, settings)
        self.looked_up = 0

    def _neighbours(self, descriptors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.looked_up += len(descriptors)
        return self._inner._neighbours(descriptors)


def test_the_early_stop_uses_fewer_descriptors_and_changes_no_clear_answer() -> None:
    models = exhibit_models(OBJECTS)
    early, full = (
        Counting(models, RecognitionSettings()),
        Counting(models, RecognitionSettings(early_stop=False)),
    )
    for seed in range(OBJECTS):
        query = photo_features(seed)
        assert match(early, query)[0].object_id == match(full, query)[0].object_id == f"exhibit-{seed}"
    assert full.looked_up == sum(len(photo_features(seed)) for seed in range(OBJECTS))
    assert early.looked_up < 0.5 * full.looked_up


def test_without_a_clear_leader_every_descriptor_votes() -> None:
    classifier = Counting(exhibit_models(OBJECTS), RecognitionSettings())
    query = photo_features(OBJECTS + 5)
    match(classifier, query)
    assert classifier.looked_up == len(query)


def test_further_rounds_continue_until_all_descriptors_have_voted() -> None:
    classifier = Counting(exhibit_models(OBJECTS), RecognitionSettings())
    rounds = classifier.rounds(photo_features(0))
    first = next(rounds)
    looked_up_first = classifier.looked_up
    *_, last = rounds
    assert looked_up_first < classifier.looked_up == len(photo_features(0))
    assert last[0].object_id == first[0].object_id
    assert last[0].votes > first[0].votes


def test_only_the_strongest_descriptors_vote() -> None:
    classifier = Counting(exhibit_models(2), RecognitionSettings(voting_features=120, early_stop=False))
    match(classifier, photo_features(0))
    assert classifier.looked_up == 120


def test_key_bits_are_a_permutation_that_keeps_distances() -> None:
    descriptors = exhibit_model(0).views[0].descriptors
    order = choose_key_bits(descriptors, tables=8, bits=14)
    assert sorted(order) == list(range(256))
    permuted = permute_bits(descriptors, order)
    before = np.bitwise_count(descriptors[:50] ^ descriptors[50:100]).sum(axis=1)
    assert np.array_equal(before, np.bitwise_count(permuted[:50] ^ permuted[50:100]).sum(axis=1))


def test_chosen_key_bits_give_more_even_buckets() -> None:
    descriptors = np.concatenate([exhibit_model(seed).views[0].descriptors for seed in range(OBJECTS)])

    def looked_at(rows: np.ndarray, bits: int = 11) -> float:
        keys = np.packbits(np.unpackbits(rows, axis=1, bitorder="little")[:, :bits], axis=1)
        _, counts = np.unique(keys, axis=0, return_counts=True)
        return float((counts**2).sum() / len(rows))

    chosen = permute_bits(descriptors, choose_key_bits(descriptors, tables=8, bits=11))
    assert looked_at(chosen) < looked_at(descriptors)


@pytest.mark.parametrize(("descriptors", "bits"), [(0, 8), (1, 8), (16_000, 13), (500_000, 18), (10**9, 21)])
def test_the_key_grows_with_the_logarithm_of_the_catalogue(descriptors: int, bits: int) -> None:
    assert key_length(descriptors) == bits


def test_a_model_of_equal_features_does_not_affect_other_objects() -> None:
    count = 400
    flat = Features(
        np.zeros((count, 2), np.float32),
        np.full((count, 32), 7, np.uint8),
        np.ones(count, np.float32),
        (640, 480),
        (640, 480),
    )
    classifier = build_classifier("multihash", [ObjectModel("flat", "", (flat,)), *exhibit_models(3)])
    assert match(classifier, photo_features(1))[0].object_id == "exhibit-1"


@pytest.mark.parametrize("backend", ["flann-lsh", "brute-force"])
def test_opencv_matchers_find_rows_in_every_block(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearsight.common.recognition.classifiers.baseline_backends._BLOCK_ROWS", 700)
    classifier = build_classifier(backend, exhibit_models(OBJECTS))
    for seed in range(OBJECTS):
        assert match(classifier, photo_features(seed))[0].object_id == f"exhibit-{seed}"
