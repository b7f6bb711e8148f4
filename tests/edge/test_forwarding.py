"""The form in which the edge forwards photos to the cloud."""

import pytest

from nearsight.common.errors import Unavailable
from nearsight.common.recognition.codec import features_to_proto
from nearsight.common.request.forms import OffloadChoice
from nearsight.common.request.next_tiers import NextTiers
from nearsight.edge.daemon import EdgeDaemon
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest
from support.edge import EdgeClient, ScriptedCloud, Serve, answer_of, cache_of, features_of, photo, warm
from support.waiting import LONG_S


@pytest.mark.parametrize(("forward", "kind"), [("image", "image"), ("features", "features")])
def test_the_setting_determines_the_form(cloud: ScriptedCloud, serve: Serve, forward: str, kind: str) -> None:
    with serve(forward=forward) as (edge, device):
        warm(edge, device, [0])
        assert device.ask(photo(1)) == ("01", "cloud")
        assert set(cloud.received) == {kind}
        device.ask(features_of(photo(77)))
        assert cloud.received[-1] == "features", "an edge cannot compute an image from features"


def test_the_cloud_gets_the_image_if_it_does_not_recognise_the_features(
    cloud: ScriptedCloud, serve: Serve
) -> None:
    with serve(forward="features") as (edge, device):
        warm(edge, device, [0])
        cloud.received.clear()
        assert device.ask(photo(77)) == (None, "cloud")
        assert cloud.received == ["features", "image"]
        assert device.ask(features_of(photo(77))) == (None, "cloud")
        assert cloud.received == ["features", "image", "features"]
        cloud.image_error = Unavailable("gone")
        assert device.ask(photo(77)) == (None, "cloud"), "the answer to the features remains"


def test_an_image_that_follows_its_features_is_forwarded_as_an_image(
    cloud: ScriptedCloud, serve: Serve
) -> None:
    """The cloud gets two requests per unknown photo, and the features only once."""
    with serve(forward="features") as (edge, device):
        warm(edge, device, [0])
        cloud.received.clear()
        cloud.flagged_unknown.clear()
        for _ in range(3):
            assert device.ask(features_of(photo(77))) == (None, "cloud")
            assert answer_of(device.send(photo(77), features_unknown=True).result(LONG_S)) == (None, "cloud")
        assert cloud.received == ["features", "image"] * 3
        assert cloud.flagged_unknown == [False, True] * 3

        lookups = cache_of(edge).regret.report().requests
        assert answer_of(device.send(photo(0), features_unknown=True).result(LONG_S)) == ("00", "cloud")
        assert cloud.received[-1] == "image"
        assert cache_of(edge).regret.report().requests == lookups, "the features were looked up already"


@pytest.mark.parametrize("forward", ["features", "image"])
def test_a_photo_that_needs_one_look_is_sent_once(cloud: ScriptedCloud, serve: Serve, forward: str) -> None:
    with serve(forward=forward) as (edge, device):
        warm(edge, device, [0])
        cloud.received.clear()
        cloud.one_looks.clear()
        unknown = photo(77)
        request = RecognizeRequest(image=ImageInput(size_bytes=len(unknown), one_look=True))
        assert answer_of(device.send_raw(request, [unknown]).result(LONG_S)) == (None, "cloud")
        assert (cloud.received, cloud.one_looks) == ([forward], [forward == "image"])


def test_an_unknown_photo_counts_once_for_the_choice_of_the_form(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[bool] = []
    monkeypatch.setattr(OffloadChoice, "observe_outcome", lambda *_, **seen: outcomes.append(seen["unknown"]))
    with serve(forward="features") as (edge, device):
        warm(edge, device, [0])
        outcomes.clear()
        device.ask(photo(77))
        assert outcomes == [True], "features, then the image"
        device.ask(features_of(photo(77)))
        device.send(photo(77), features_unknown=True).result(LONG_S)
        assert outcomes == [True], "there was no choice"
        device.ask(photo(1))
        assert outcomes == [True, False]


def test_if_most_photos_are_unknown_images_are_sent_at_once(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    asked = []
    for number in range(80):
        cloud.received.clear()
        assert device.ask(photo(77 + number % 3)) == (None, "cloud")
        asked.append(tuple(cloud.received))
    assert set(asked) <= {("features", "image"), ("image",)}
    assert asked[-20:].count(("image",)) >= 19, "except for a trial"


def test_the_smaller_form_is_sent(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NextTiers, "observe", lambda *_: None)  # times of a busy machine do not count
    warm(edge, device, [0])
    image = photo(1)
    features = sum(map(len, features_to_proto(features_of(image), 0)[1]))
    padded = image + bytes(max(0, features - len(image)) + 1)  # decoders ignore bytes after a JPEG
    device.ask(padded)
    assert cloud.received[-1] == "features"
    tiny = features_of(image).strongest(20)
    device.ask(tiny)
    assert cloud.received[-1] == "features"
