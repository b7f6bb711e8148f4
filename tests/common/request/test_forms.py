"""The choice between features and image: the earlier expected answer, from measurements."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearsight.common.request.forms import EXPLORE_SHARE, LinkEstimate, OffloadChoice, Payload

RECEIVER_MS = {"features": 5.0, "image": 15.0}
FEATURES = Payload("features", 36_000)
IMAGE = Payload("image", 60_000)
SMALL_IMAGE = Payload("image", 9_000)


def choice(mbps: float = 10.0) -> OffloadChoice:
    """A choice over a link with a latency of 20 ms."""
    made = OffloadChoice(RECEIVER_MS)
    for number in range(400):
        form, size = ("image", 60_000) if number % 2 else ("features", 8_000)
        made.observe(form, size, 20.0 + 8e-3 / mbps * size, RECEIVER_MS[form])
    return made


def test_the_cost_of_a_form_is_the_sum_of_preparation_transfer_and_computation() -> None:
    made = choice(mbps=8.0)
    assert made.choose([Payload("features", 30_000, before_ms=12.0), IMAGE]) == "features"
    expected_ms = {"features": 12 + 20 + 30 + 5, "image": 20 + 60 + 15}
    assert made.expected_ms == pytest.approx(expected_ms, rel=0.01)
    assert not made.explored


def test_available_features_are_preferred_to_a_larger_image() -> None:
    assert choice().choose([FEATURES, IMAGE]) == "features"


def test_a_slow_network_prefers_fewer_bytes_and_a_fast_one_less_computing() -> None:
    assert choice(mbps=1.0).choose([FEATURES, SMALL_IMAGE]) == "image"
    assert choice(mbps=1000.0).choose([FEATURES, SMALL_IMAGE]) == "features"


def test_a_slow_sender_leaves_the_extraction_to_a_faster_receiver() -> None:
    slow_device = Payload("features", 36_000, before_ms=250.0)
    assert choice().choose([slow_device, IMAGE]) == "image"


def test_a_measured_link_changes_the_choice() -> None:
    made = choice(mbps=100.0)
    assert made.choose([FEATURES, SMALL_IMAGE]) == "features"
    for size, transfer_ms in [(36_000, 310.0), (9_000, 92.0)] * 20:  # 1 Mbit/s
        made.observe("features", size, transfer_ms, 5.0)
    assert made.choose([FEATURES, SMALL_IMAGE]) == "image"


def test_a_measured_receiver_changes_the_choice() -> None:
    made = choice(mbps=100.0)
    for _ in range(60):
        made.observe("features", 36_000, 23.0, 60.0)
    assert made.choose([FEATURES, IMAGE]) == "image"


def test_a_single_form_is_chosen() -> None:
    assert choice().choose([IMAGE]) == "image"


def test_the_other_form_is_explored_at_intervals() -> None:
    made, reasons = choice(), []
    for _ in range(1000):
        made.choose([FEATURES, IMAGE])
        if made.explored:
            reasons.append(made.why)
    assert 5 <= len(reasons) <= 20
    assert all("measure it again" in why for why in reasons)


@pytest.mark.parametrize("mbps", [0.5, 2.0, 50.0])
def test_exploring_never_costs_more_than_its_share(mbps: float) -> None:
    made, best_ms, spent_ms = choice(mbps), 0.0, 0.0
    for _ in range(3000):
        form = made.choose([FEATURES, IMAGE])
        best_ms += min(made.expected_ms.values())
        spent_ms += made.expected_ms[form]
    assert best_ms < spent_ms <= (1 + EXPLORE_SHARE) * best_ms * (1 + 1e-9)


def test_a_form_is_chosen_again_when_its_receiver_becomes_fast() -> None:
    made = choice(mbps=100.0)
    made.observe("image", 9_000, 21.0, 900.0)  # a receiver that was busy once
    real_ms = {"features": 5.0, "image": 1.0}
    for _ in range(8000):
        form = made.choose([FEATURES, SMALL_IMAGE])
        size = FEATURES.size_bytes if form == "features" else SMALL_IMAGE.size_bytes
        made.observe(form, size, 20 + 8e-5 * size, real_ms[form])
    assert made.choose([FEATURES, SMALL_IMAGE]) == "image"


def test_a_choice_gives_its_reason() -> None:
    made = choice()
    assert not made.why
    made.choose([FEATURES, IMAGE])
    assert made.why.startswith("features (expected sooner); features 36.0 kB: ")
    assert "image 60.0 kB" in made.why
    assert "20.0 ms + 10.0 Mbit/s" in made.why
    unmeasured = OffloadChoice(RECEIVER_MS)
    unmeasured.choose([IMAGE])
    assert "link 20.0 ms + 20.0 Mbit/s (assumed)" in unmeasured.why


def test_unknown_features_cost_the_image_as_well() -> None:
    made = choice(mbps=8.0)
    for _ in range(400):
        made.observe_outcome(unknown=True)
    assert made.choose([Payload("features", 30_000, before_ms=12.0), IMAGE]) == "image"
    assert made.expected_ms == pytest.approx({"features": 67 + 95, "image": 95}, rel=0.01)
    made.choose([Payload("features", 30_000, before_ms=12.0)])
    assert made.expected_ms == pytest.approx({"features": 67}, rel=0.01), "no image, no second trip"


@pytest.mark.parametrize("share", [0.0, 0.25, 0.9])
def test_the_share_of_unknown_photos_is_followed(share: float) -> None:
    made, rng = choice(), np.random.default_rng(5)
    seen = []
    for _ in range(2000):
        made.observe_outcome(unknown=bool(rng.random() < share))
        seen.append(made.unknown_share)
    assert np.mean(seen[200:]) == pytest.approx(share, abs=0.03)
    assert np.ptp(seen[200:]) < 0.8


def test_unknown_features_add_a_second_trip_to_the_tiers_behind_the_receiver() -> None:
    """The compute time of an edge is short; its trip to the cloud is made twice."""
    near, far = choice(mbps=1000.0), choice(mbps=1000.0)
    for number in range(100):
        near.observe_outcome(unknown=number % 5 == 0)
        far.observe_outcome(unknown=number % 5 == 0, behind_ms=200.0)
    assert near.choose([FEATURES, IMAGE]) == "features"
    assert far.choose([FEATURES, IMAGE]) == "image"
    assert far.expected_ms["image"] < 50.0, "both forms make the same first trip"


# The link


@given(
    latency_ms=st.floats(1, 300),
    mbps=st.floats(0.5, 200),
    seed=st.integers(0, 100),
)
def test_latency_and_rate_are_estimated_from_transfers_of_two_sizes(
    latency_ms: float, mbps: float, seed: int
) -> None:
    link = LinkEstimate()
    rng = np.random.default_rng(seed)
    for size in rng.choice([8_000, 60_000], 200).tolist():
        link.observe(size, latency_ms + 8e-3 / mbps * size)
    for size in (8_000, 60_000):
        assert link.transfer_ms(size) == pytest.approx(latency_ms + 8e-3 / mbps * size, rel=0.25, abs=6)


def test_a_network_that_changes_is_followed() -> None:
    link = LinkEstimate()
    for transfer_ms in [50.0] * 100 + [500.0] * 60:
        link.observe(30_000, transfer_ms)
    assert link.transfer_ms(30_000) == pytest.approx(500.0, rel=0.1)


@given(
    transfers=st.lists(st.tuples(st.floats(0, 1e7), st.floats(-10, 1e5)), max_size=50),
    size=st.floats(0, 1e7),
)
def test_an_estimate_is_never_negative_and_never_falls_with_size(
    transfers: list[tuple[float, float]], size: float
) -> None:
    link = LinkEstimate()
    for bytes_, transfer_ms in transfers:
        link.observe(bytes_, transfer_ms)
    assert 0 <= link.transfer_ms(0) <= link.transfer_ms(size) < math.inf
    assert 0 <= link.ms_per_byte < math.inf


def test_faster_transfers_of_larger_messages_give_no_time_per_byte() -> None:
    link = LinkEstimate()
    for _ in range(50):
        link.observe(1_000, 100.0)
        link.observe(100_000, 10.0)
    assert link.ms_per_byte == 0
    assert link.transfer_ms(1_000) == link.transfer_ms(100_000)


@pytest.mark.parametrize("transfer_ms", [0.0, -3.0, math.nan, math.inf])
def test_impossible_transfer_times_are_ignored(transfer_ms: float) -> None:
    link = LinkEstimate()
    link.observe(1_000, transfer_ms)
    assert link.transfer_ms(1_000) == LinkEstimate().transfer_ms(1_000)
