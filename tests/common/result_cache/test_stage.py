"""The result cache as a stage: answers, learning, refusals, and its payoff."""

from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from nearsight.common.catalogue.answers import Listing
from nearsight.common.clock import ManualClock
from nearsight.common.recognition.images import GrayImage
from nearsight.common.recognition.models import Features
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import OBJECT, RESULT, Answer, Lesson
from nearsight.common.result_cache.metrics import result_cache_metrics
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.common.result_cache.stage import LookState, Payoff, ResultStage
from nearsight.common.rpc.envelope import Hop
from support.requests import PlainQuery

CORNERS = ((0.0, 0.0), (9.0, 0.0), (9.0, 9.0), (0.0, 9.0))
LESSON = Lesson(
    "edge", unknown=False, round_trip_ms=50, first_ms=50, waited_ms=50, complete=True, hop=Hop("edge")
)
GIVEN_UP = replace(LESSON, complete=False)


@cache
def scene(seed: int) -> NDArray[np.uint8]:
    """A view with random areas; only to read."""
    areas = np.random.default_rng(seed).integers(0, 256, (6, 8)).astype(np.uint8)
    return np.repeat(np.repeat(areas, 10, axis=0), 10, axis=1)


FLAT = np.full((60, 80), 128, np.uint8)


def shown(name: str, version: int = 1) -> RecognizedObject:
    return RecognizedObject(name, f"the {name}", version, 0.7, 40, CORNERS, {"room": "3"})


class KeyedPhoto(PlainQuery):
    """A photo with pixels."""

    def __init__(self, pixels: NDArray[np.uint8], client: str = "", *, asked_again: bool = False) -> None:
        super().__init__(asked_again=asked_again)
        self.pixels = pixels
        self.client = client
        self.features: Features | None = None
        self.result_look: LookState | None = None

    def for_key(self) -> GrayImage | Features:
        return self.features or GrayImage(self.pixels, (640, 480))


class Tier:
    """A stage with a catalogue, and a classifier whose answers a test provides.

    By default, the first five photos of a view are verified and the sixth is served (a back-off of 1.5).
    """

    def __init__(self, **settings: float) -> None:
        self.clock = ManualClock()
        self.listing: Listing | None = Listing({"mona": 1, "scream": 1}, revision=1)
        self.stage = ResultStage(
            "museum",
            lambda: self.listing,
            ResultCacheSettings(**settings),
            self.clock,
            Random(1),
        )
        self.behind_ms = 50.0

    def begin(
        self, pixels: NDArray[np.uint8], client: str = ""
    ) -> tuple[KeyedPhoto, RecognizedObject | None]:
        query = KeyedPhoto(pixels, client)
        return query, self.stage.look(query) if self.stage.features_wanted(query) is not None else None

    def ask(
        self,
        pixels: NDArray[np.uint8],
        says: RecognizedObject | None,
        lesson: Lesson | None = LESSON,
        grain: str = OBJECT,
    ) -> RecognizedObject | None:
        """The answer of the stage to a photo; without an answer, it learns that of the classifier."""
        query, found = self.begin(pixels)
        if found is None:
            self.clock.advance(self.behind_ms / 1e3)
            self.stage.learn(query, Answer(says, "edge", grain), lesson)
        return found

    def serves(self, pixels: NDArray[np.uint8], name: str, *, within: int = 12) -> bool:
        """Whether it answers one of the next photos of a view that always shows this object."""
        return any(self.ask(pixels, shown(name)) is not None for _ in range(within))


def test_a_view_is_answered_without_corners_after_five_equal_answers() -> None:
    tier = Tier()
    answers = [tier.ask(scene(0), shown("mona")) for _ in range(6)]
    assert answers[:5] == [None] * 5
    assert answers[5] == replace(shown("mona"), corners=None)


def test_views_are_distinguished() -> None:
    tier = Tier()
    assert tier.serves(scene(0), "mona")
    assert tier.ask(scene(1), shown("scream")) is None


def test_noisy_photos_of_a_view_are_answered() -> None:
    tier, rng = Tier(), np.random.default_rng(7)
    noisy = [(scene(0) + rng.normal(0, 4, (60, 80))).clip(0, 255).astype(np.uint8) for _ in range(30)]
    assert sum(tier.ask(one, shown("mona")) is not None for one in noisy) >= 10


def test_clients_do_not_share_results_of_views() -> None:
    tier = Tier(beta=1e9)
    query, _ = tier.begin(scene(0), "liar")
    tier.stage.learn(query, Answer(shown("scream"), "edge"), LESSON)
    assert tier.begin(scene(0), "liar")[1] is not None
    assert tier.begin(scene(0), "visitor")[1] is None


def test_features_are_looked_up_without_a_photo() -> None:
    tier, rng = Tier(beta=1e9), np.random.default_rng(5)
    descriptors = rng.integers(0, 256, (300, 32)).astype(np.uint8)
    points, strengths = np.zeros((300, 2), np.float32), np.ones(300, np.float32)
    features = Features(points, descriptors, strengths, (640, 480), (640, 480))
    for expected in (False, True):
        query = KeyedPhoto(scene(0))
        query.features = features
        assert (tier.stage.look(query) is not None) == expected
        tier.stage.learn(query, Answer(shown("mona"), "edge"), LESSON)


def test_a_uniform_photo_is_not_cached() -> None:
    tier = Tier()
    assert not tier.serves(FLAT, "mona")
    assert tier.stage.state.entries == 0


def test_unknown_answers_are_not_cached() -> None:
    tier = Tier()
    assert [tier.ask(scene(0), None) for _ in range(20)] == [None] * 20
    assert tier.stage.state.entries == 0


def test_an_unknown_answer_removes_the_result_that_it_contradicts() -> None:
    tier = Tier()
    assert tier.serves(scene(0), "mona", within=6)
    assert tier.ask(scene(0), None) is None
    state = tier.stage.state
    assert (state.entries, state.counts.corrections) == (0, 1)
    assert state.wrong_share == 1.0


def test_a_look_without_a_final_answer_changes_nothing() -> None:
    """The next tier failed, or gave up between features and image."""
    tier = Tier()
    assert tier.serves(scene(0), "mona", within=6)
    tier.begin(scene(0))
    assert tier.ask(scene(0), None, GIVEN_UP) is None
    assert tier.stage.state.counts.corrections == 0
    tier.ask(scene(0), shown("mona"))
    assert tier.serves(scene(0), "mona", within=1)


def test_results_of_a_classifier_that_contradicts_itself_are_not_served() -> None:
    tier = Tier()
    served = [tier.ask(scene(0), shown(("mona", "scream")[n % 2])) for n in range(Payoff.WINDOW)]
    assert not any(served)
    assert tier.stage.state.counts.corrections == Payoff.WINDOW - 1


def test_colliding_photos_cause_limited_errors_and_raise_the_estimate() -> None:
    """An adversary sends photos of the mona until they are served, then others with the same key."""
    tier, wrong, photos = Tier(), 0, 2000
    for n in range(photos):
        truth = "mona" if n % 20 < 6 else "scream"
        found = tier.ask(scene(0), shown(truth))
        wrong += found is not None and found.object_id != truth
    state = tier.stage.state
    assert 0 < wrong < 0.2 * photos
    assert state.counts.corrections >= photos / 20
    assert state.wrong_share > 0.2
    assert state.wrong_share_bound > state.wrong_share
    # Other views are not affected.
    assert tier.serves(scene(1), "scream")


def test_answers_of_the_result_cache_of_the_next_tier_are_not_learnt() -> None:
    tier = Tier()
    assert not any(tier.ask(scene(0), shown("mona"), grain=RESULT) for _ in range(20))
    assert tier.stage.state.entries == 0


def test_verifications_may_follow_an_error_budget_with_an_alarm() -> None:
    tier = Tier(error=0.001)
    names = ("mona", "scream")
    for n in range(2000):
        view = n // 400  # several photos per view, as visitors take them
        tier.ask(scene(view), shown(names[view % 2]))
    calm = tier.stage.state
    assert calm.counts.served > 0.5 * calm.counts.lookups
    assert not calm.alarm
    for _ in range(50):  # as after verifications
        tier.stage._cache.results.recent_errors.note(20, wrong=True)
    assert tier.stage.state.alarm
    assert "MORE THAN ALLOWED" in tier.stage.state.why


def test_answers_of_later_stages_are_learnt_like_those_of_a_tier() -> None:
    tier = Tier()
    assert any(tier.ask(scene(0), shown("mona"), lesson=None) for _ in range(6))


def test_the_second_trip_of_a_photo_is_not_looked_up() -> None:
    tier = Tier()
    assert tier.serves(scene(0), "mona")
    assert tier.stage.features_wanted(KeyedPhoto(scene(0))) == 0
    assert tier.stage.features_wanted(KeyedPhoto(scene(0), asked_again=True)) is None


# Changes of the catalogue


def test_without_a_listing_nothing_is_answered() -> None:
    tier = Tier()
    tier.listing = None
    assert not tier.serves(scene(0), "mona")


@pytest.mark.parametrize(
    "versions", [{"scream": 1}, {"mona": 2, "scream": 1}, {"mona": 1, "scream": 1, "new": 1}]
)
def test_a_new_revision_of_the_catalogue_clears_the_cache(versions: dict[str, int]) -> None:
    tier = Tier()
    assert tier.serves(scene(0), "mona")
    tier.listing = Listing(versions, revision=2)
    assert tier.begin(scene(0))[1] is None
    assert tier.stage.state.entries == 0


def test_answers_during_a_change_of_the_catalogue_are_not_learnt() -> None:
    tier = Tier(beta=1e9)
    tier.ask(scene(0), shown("mona"))
    query, _ = tier.begin(scene(0))
    tier.listing = Listing({"mona": 2}, revision=2)
    tier.stage.learn(query, Answer(shown("mona"), "edge"), LESSON)
    assert [tier.begin(scene(0))[1] for _ in range(5)] == [None] * 5


def test_objects_outside_of_the_listing_are_not_cached() -> None:
    """The next tier may still answer with an object that was removed."""
    tier = Tier()
    tier.listing = Listing({"mona": 2}, revision=2)
    assert not tier.serves(scene(0), "mona")
    assert not tier.serves(scene(1), "scream")
    assert tier.stage.state.entries == 0


def test_an_answer_expires_without_a_confirmation() -> None:
    tier = Tier(ttl_s=60.0, beta=1e9)
    assert tier.serves(scene(0), "mona")
    assert tier.serves(scene(0), "mona", within=1)
    tier.clock.advance(61.0)
    assert tier.begin(scene(0))[1] is None


# Views that later stages did not recognise


def missed(tier: Tier, pixels: NDArray[np.uint8], client: str = "") -> bool:
    """Whether later stages recently did not recognise this view."""
    query, found = tier.begin(pixels, client)
    assert found is None
    assert query.result_look is not None
    return query.result_look.missed


def test_an_unknown_view_is_remembered_until_it_is_recognised() -> None:
    tier = Tier()
    tier.ask(scene(0), None)
    assert missed(tier, scene(0))
    assert not missed(tier, scene(1))
    assert not missed(tier, scene(0), "somebody else")
    tier.ask(scene(0), shown("mona"))
    assert not missed(tier, scene(0))


def test_a_view_is_missed_before_the_next_tier_answers() -> None:
    tier = Tier()
    query, _ = tier.begin(scene(0))
    assert not missed(tier, scene(0))
    tier.stage.missed(query)
    assert missed(tier, scene(0))
    tier.stage.learn(query, Answer(shown("mona"), "cloud", OBJECT), LESSON)
    assert not missed(tier, scene(0))


def test_later_stages_look_again_if_the_next_tier_takes_long() -> None:
    tier = Tier()
    query, _ = tier.begin(scene(0))
    tier.stage.missed(query)
    tier.clock.advance(1.0)
    assert not missed(tier, scene(0))


def test_a_new_revision_clears_the_unknown_views() -> None:
    tier = Tier()
    query, _ = tier.begin(scene(0))
    tier.ask(scene(0), None)
    tier.listing = Listing({"mona": 1, "scream": 1, "new": 1}, revision=2)
    assert not missed(tier, scene(0))
    tier.stage.missed(query)
    assert not missed(tier, scene(0))


# Payoff


def requests(payoff: Payoff, count: int, *, cost_ms: float, hits: float, otherwise_ms: float) -> int:
    """The number of lookups for one request per second."""
    looked = 0
    for n in range(count):
        if not payoff.may_look():
            continue
        looked += 1
        hit = int((n + 1) * hits) > int(n * hits)
        payoff.looked(cost_ms, float(n), hit=hit)
        if not hit:
            payoff.answered(otherwise_ms)
    return looked


def test_lookups_continue_while_they_save_time() -> None:
    payoff = Payoff()
    assert requests(payoff, 5000, cost_ms=1.0, hits=0.1, otherwise_ms=20.0) == 5000
    assert payoff.pays
    assert (payoff.cost_ms, payoff.saved_ms) == (pytest.approx(1.0), pytest.approx(2.0))


def test_lookups_stop_if_they_cost_more_than_they_save_and_are_tried_less_often() -> None:
    payoff = Payoff()
    assert requests(payoff, Payoff.WINDOW, cost_ms=1.0, hits=0.1, otherwise_ms=5.0) == Payoff.WINDOW
    assert not payoff.pays
    assert (payoff.cost_ms, payoff.saved_ms) == (pytest.approx(1.0), pytest.approx(0.5))
    assert requests(payoff, 100_000, cost_ms=1.0, hits=0.1, otherwise_ms=5.0) <= 800


def test_lookups_continue_while_the_first_views_of_many_clients_are_learnt() -> None:
    """The first 5 photos of a view are misses, and 100 clients send one photo per second each."""
    payoff = Payoff()
    for n in range(10_000):
        assert payoff.may_look()
        payoff.looked(1.0, n / 100, hit=n >= 500)
        if n < 500:
            payoff.answered(20.0)
    assert payoff.pays


def test_lookups_resume_when_they_save_time_again() -> None:
    payoff = Payoff()
    requests(payoff, 10_000, cost_ms=1.0, hits=0.0, otherwise_ms=50.0)
    requests(payoff, 20_000, cost_ms=1.0, hits=0.5, otherwise_ms=50.0)
    assert payoff.pays
    assert requests(payoff, 1000, cost_ms=1.0, hits=0.5, otherwise_ms=50.0) == 1000


def test_a_cache_without_repeated_photos_stops_and_gives_the_reason() -> None:
    tier = Tier()
    tier.behind_ms = 1.0
    for n in range(Payoff.WINDOW):
        query, _ = tier.begin(scene(n))
        tier.clock.advance(0.5)
        tier.stage.learn(query, Answer(shown("mona"), "edge"), LESSON)
    state = tier.stage.state
    assert tier.stage.features_wanted(KeyedPhoto(scene(0))) is None
    assert not state.on
    assert state.why.startswith("off, tried again later")
    values = {
        sample.name: sample.value
        for metric in result_cache_metrics({"museum": state})
        for sample in metric.samples
    }
    assert values["nearsight_result_cache_on"] == 0
    assert values["nearsight_result_cache_misses_total"] == Payoff.WINDOW
