"""Features or image to the cloud: decided by what the link and the cloud turn out to be."""

import pytest

from nearsight.common.rpc.envelope import Hop
from nearsight.edge.uplink import Surplus, Uplink

IMAGE, FEATURES = 120_000, 30_000


def learn(uplink: Uplink, *, latency_ms: float, mbps: float, cloud_ms: dict[str, float]) -> None:
    """Answers over a link like this, of a cloud that computes that long on each form."""
    sizes = {"image": IMAGE, "features": FEATURES}
    for number in range(200):
        form = "image" if number % 2 else "features"
        size = sizes[form] * (10 + number % 5) // 12
        round_trip_ms = latency_ms + size * 8e-3 / mbps + cloud_ms[form]
        hop = Hop("cloud", 0.0, cloud_ms[form], 0.0, size, 100)
        uplink.observe(form, size, round_trip_ms, (hop,))


def test_over_a_slow_link_features_are_extracted_only_to_send_less() -> None:
    uplink = Uplink("auto", 800)
    learn(uplink, latency_ms=40.0, mbps=5.0, cloud_ms={"image": 30.0, "features": 20.0})
    assert uplink.sends_features(IMAGE, None, 15.0)
    assert "features" in uplink.why()
    assert "Mbit/s" in uplink.why()


def test_what_the_cloud_computes_is_no_part_of_the_link() -> None:
    uplink = Uplink("auto", 800)
    learn(uplink, latency_ms=40.0, mbps=5.0, cloud_ms={"image": 300.0, "features": 300.0})
    uplink.sends_features(IMAGE, FEATURES, None)
    latency_ms = float(uplink.why().split("link ")[1].split(" ms")[0])
    assert latency_ms == pytest.approx(40.0, rel=0.05)


def test_over_a_fast_link_a_fast_cloud_extracts_the_features() -> None:
    uplink = Uplink("auto", 800)
    learn(uplink, latency_ms=1.0, mbps=1000.0, cloud_ms={"image": 8.0, "features": 5.0})
    assert not uplink.sends_features(IMAGE, None, 40.0)
    assert uplink.sends_features(IMAGE, FEATURES, None), "those that are here anyway save the cloud its work"


def test_a_small_image_goes_over_a_slow_link_as_it_is() -> None:
    uplink = Uplink("auto", 800)
    learn(uplink, latency_ms=40.0, mbps=2.0, cloud_ms={"image": 30.0, "features": 20.0})
    assert not uplink.sends_features(8_000, FEATURES, None)


def test_an_edge_that_must_not_work_sends_what_came() -> None:
    for forward in ("auto", "features"):
        assert not Uplink(forward, 800).sends_features(IMAGE, None, None)
        assert Uplink(forward, 800).sends_features(None, FEATURES, None)


def test_settings_overrule_measurements_where_there_is_a_choice() -> None:
    assert Uplink("features", 800).sends_features(10, None, 1000.0)
    assert not Uplink("image", 800).sends_features(10**9, FEATURES, None)
    assert Uplink("image", 800).sends_features(None, FEATURES, None)


def test_an_answer_without_times_teaches_nothing() -> None:
    uplink = Uplink("auto", 800)
    before = uplink.sends_features(IMAGE, FEATURES, None)
    uplink.observe("image", IMAGE, 1.0, ())
    assert uplink.sends_features(IMAGE, FEATURES, None) == before


def test_a_second_trip_is_part_of_the_price_of_features() -> None:
    """Features take 40 + 48 + 20 ms, an image 40 + 192 + 30 ms: three unknown photos of four are too many."""
    uplink = Uplink("auto", 800)
    learn(uplink, latency_ms=40.0, mbps=5.0, cloud_ms={"image": 30.0, "features": 20.0})
    chosen = []
    for _ in range(100):
        uplink.observe_outcome(unknown=False)
        uplink.observe_outcome(unknown=True)
        chosen.append(uplink.sends_features(IMAGE, FEATURES, None))
    assert sum(chosen) >= 98, "half of the photos: 239 ms < 262 ms, but for a trial"
    for _ in range(20):
        uplink.observe_outcome(unknown=True)
    assert not uplink.sends_features(IMAGE, FEATURES, None)
    assert "unknown" in uplink.why()


def test_a_crowd_of_unknown_photos_is_forgotten_though_only_images_are_sent() -> None:
    uplink = Uplink("auto", 800)
    learn(uplink, latency_ms=40.0, mbps=5.0, cloud_ms={"image": 30.0, "features": 20.0})
    for _ in range(100):
        uplink.observe_outcome(unknown=True)
    photos = 0
    while not uplink.sends_features(IMAGE, FEATURES, None):
        uplink.observe_outcome(unknown=False)  # known from their images
        photos += 1
    assert 5 <= photos <= 20


def test_features_that_are_not_here_cost_their_extraction_at_most() -> None:
    slow = Uplink("auto", 800)
    learn(slow, latency_ms=40.0, mbps=5.0, cloud_ms={"image": 30.0, "features": 20.0})
    assert slow.surplus(IMAGE, 15.0) == Surplus(15.0, 15.0), "they are made and sent"
    assert slow.surplus(IMAGE, None).last_ms > 100.0, "the photo is sent"
    assert slow.surplus(8_000, 15.0) == Surplus(), "the photo would be sent in any case"
    fast = Uplink("auto", 800)
    learn(fast, latency_ms=1.0, mbps=1000.0, cloud_ms={"image": 8.0, "features": 5.0})
    assert 3.0 < fast.surplus(IMAGE, 40.0).last_ms < 10.0, "the photo is sent, and the cloud makes them"


def test_where_photos_may_be_unknown_the_photo_itself_saves_a_second_trip_but_not_the_first_answer() -> None:
    uplink = Uplink("auto", 800)
    learn(uplink, latency_ms=40.0, mbps=5.0, cloud_ms={"image": 30.0, "features": 20.0})
    without = uplink.surplus(IMAGE, None)
    assert without.first_ms == without.last_ms > 100.0
    for _ in range(5):
        uplink.observe_outcome(unknown=True)
    surplus = uplink.surplus(IMAGE, None)
    assert surplus.first_ms == pytest.approx(without.first_ms), "features are still answered sooner"
    assert surplus.last_ms < without.last_ms - 30.0


def test_where_the_form_is_set_only_that_is_priced() -> None:
    assert Uplink("features", 800).surplus(IMAGE, 15.0) == Surplus(15.0, 15.0)
    assert Uplink("features", 800).surplus(IMAGE, None) == Surplus()
    assert Uplink("image", 800).surplus(IMAGE, 15.0) == Surplus()
