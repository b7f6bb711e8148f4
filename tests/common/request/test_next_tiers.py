"""The form that a tier gets, depending on measurements of the link and the tier."""

import pytest

from nearsight.common.request.answer import Lesson
from nearsight.common.request.forms import FEATURES, IMAGE, Payload
from nearsight.common.request.next_tiers import NextTiers
from nearsight.common.rpc.envelope import Hop
from support.requests import COMPUTING_MS, RULES, learn, tiers

IMAGE_BYTES, FEATURES_BYTES = 120_000, 30_000
BOTH = (Payload(FEATURES, FEATURES_BYTES), Payload(IMAGE, IMAGE_BYTES))


def measured(
    latency_ms: float, mbps: float, image_ms: float, features_ms: float, tier: str = "cloud"
) -> NextTiers:
    next_tiers = tiers("edge", "cloud")
    measure(next_tiers, latency_ms, mbps, image_ms, features_ms, tier)
    return next_tiers


def measure(
    next_tiers: NextTiers, latency_ms: float, mbps: float, image_ms: float, features_ms: float, tier: str
) -> None:
    learn(
        next_tiers,
        latency_ms=latency_ms,
        mbps=mbps,
        computed_ms={IMAGE: image_ms, FEATURES: features_ms},
        sizes={IMAGE: IMAGE_BYTES, FEATURES: FEATURES_BYTES},
        tier=tier,
    )


def form(next_tiers: NextTiers, *payloads: Payload, tier: str = "cloud") -> str:
    choice = next_tiers.choose([tier], payloads or BOTH, 0.0)
    assert choice is not None
    return choice.form


def test_the_compute_time_of_the_cloud_is_not_part_of_the_link_estimate() -> None:
    next_tiers = measured(40.0, 5.0, 300.0, 300.0)
    form(next_tiers)
    latency_ms = float(next_tiers.why()["cloud"].split("link ")[1].split(" ms")[0])
    assert latency_ms == pytest.approx(40.0, rel=0.05)


def test_each_tier_has_a_link_of_its_own() -> None:
    next_tiers = measured(5.0, 1000.0, 10.0, 300.0, "edge")
    measure(next_tiers, 5.0, 0.5, 10.0, 1.0, "cloud")
    assert (form(next_tiers, tier="edge"), form(next_tiers, tier="cloud")) == (IMAGE, FEATURES)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5.0])
def test_impossible_times_do_not_change_the_estimates(value: float) -> None:
    next_tiers = tiers()
    before = [next_tiers.overhead("cloud", size_bytes, 5.0) for size_bytes in (4_000, 90_000)]
    for _ in range(10):
        next_tiers.observe("cloud", IMAGE, 1000, value, (Hop("cloud", 0.0, value, 0.0, 1000, 10),))
        next_tiers.observe("cloud", IMAGE, 1000, value, ())
    assert [next_tiers.overhead("cloud", size_bytes, 5.0) for size_bytes in (4_000, 90_000)] == before


def test_a_tier_cannot_have_worked_longer_than_its_answer_took_whatever_it_reports() -> None:
    near, far = measured(5.0, 1000.0, 10.0, 300.0), measured(40.0, 5.0, 30.0, 20.0)
    near.observe("cloud", IMAGE, IMAGE_BYTES, 20.0, (Hop("cloud", compute_ms=1e9),))
    assert form(near) == IMAGE
    answered(far, unknown=True, behind_ms=1e9)
    assert form(far) == FEATURES


def test_the_size_of_future_features_is_estimated_from_recent_ones() -> None:
    next_tiers = NextTiers(["cloud"], RULES, COMPUTING_MS, 800)
    assert next_tiers.features_bytes == 800 * 38
    for _ in range(100):
        next_tiers.observe("cloud", FEATURES, 10_000, 50.0, (Hop("cloud"),))
        next_tiers.observe("cloud", IMAGE, 90_000, 50.0, (Hop("cloud"),))
    assert next_tiers.features_bytes == pytest.approx(10_000, rel=0.01)


def answered(next_tiers: NextTiers, *, unknown: bool, behind_ms: float = 0.0) -> None:
    choice = next_tiers.choose(["cloud"], [Payload(IMAGE, IMAGE_BYTES)], 0.0)
    assert choice is not None
    hop = Hop("cloud", next_tier_ms=behind_ms)
    lesson = Lesson("cloud", unknown, 100.0, 100.0, 100.0, complete=True, hop=hop)
    next_tiers.succeeded(choice, lesson)


def test_the_cost_of_features_includes_the_second_trip() -> None:
    """Features take 40 + 48 + 20 ms, an image 40 + 192 + 30 ms: three unknown photos of four are too many."""
    next_tiers = measured(40.0, 5.0, 30.0, 20.0)
    chosen = []
    for _ in range(100):
        answered(next_tiers, unknown=False)
        answered(next_tiers, unknown=True)
        chosen.append(form(next_tiers))
    assert chosen.count(FEATURES) >= 98, "half of the photos: 239 ms < 262 ms, except for explorations"
    for _ in range(20):
        answered(next_tiers, unknown=True)
    assert form(next_tiers) == IMAGE
    assert "unknown" in next_tiers.why()["cloud"]


def test_the_share_of_unknown_photos_falls_although_only_images_are_sent() -> None:
    next_tiers = measured(40.0, 5.0, 30.0, 20.0)
    for _ in range(100):
        answered(next_tiers, unknown=True)
    photos = 0
    while form(next_tiers) == IMAGE:
        answered(next_tiers, unknown=False)  # recognised from their images
        photos += 1
    assert 5 <= photos <= 20
