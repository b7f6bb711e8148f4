"""In which form the cloud gets what the edge does not know."""

import pytest

from nearsight.common.errors import Unavailable
from nearsight.common.recognition.codec import features_to_proto
from nearsight.common.request.forms import OffloadChoice
from nearsight.edge.daemon import EdgeDaemon
from nearsight.protos.recognition_pb2 import ImageInput, RecognizeRequest
from support.edge import EdgeClient, ScriptedCloud, Serve, answer_of, cache_of, features_of, photo, warm


@pytest.mark.parametrize(("forward", "kind"), [("image", "image"), ("features", "features")])
def test_the_cloud_gets_what_the_setting_says(
    cloud: ScriptedCloud, serve: Serve, forward: str, kind: str
) -> None:
    with serve(forward=forward) as (edge, device):
        warm(edge, device, [0])
        assert device.ask(photo(1)) == ("01", "cloud")
        assert set(cloud.received) == {kind}
        device.ask(features_of(photo(77)))
        assert cloud.received[-1] == "features", "an edge cannot make an image of features"


def test_the_cloud_gets_the_photo_whose_features_it_does_not_know(cloud: ScriptedCloud, serve: Serve) -> None:
    with serve(forward="features") as (edge, device):
        warm(edge, device, [0])
        cloud.received.clear()
        assert device.ask(photo(77)) == (None, "cloud")
        assert cloud.received == ["features", "image"]
        assert device.ask(features_of(photo(77))) == (None, "cloud")
        assert cloud.received == ["features", "image", "features"]
        cloud.image_error = Unavailable("gone")
        assert device.ask(photo(77)) == (None, "cloud"), "what the features said stands"


def test_a_photo_that_a_device_sends_after_its_features_goes_on_as_an_image(
    cloud: ScriptedCloud, serve: Serve
) -> None:
    """The cloud is asked twice per unknown photo, not with the same features once more."""
    with serve(forward="features") as (edge, device):
        warm(edge, device, [0])
        cloud.received.clear()
        cloud.flagged_unknown.clear()
        for _ in range(3):
            assert device.ask(features_of(photo(77))) == (None, "cloud")
            assert answer_of(device.send(photo(77), features_unknown=True).result(30)) == (None, "cloud")
        assert cloud.received == ["features", "image"] * 3
        assert cloud.flagged_unknown == [False, True] * 3

        lookups = cache_of(edge).regret.report().requests
        assert answer_of(device.send(photo(0), features_unknown=True).result(30)) == ("00", "cloud")
        assert cloud.received[-1] == "image"
        assert cache_of(edge).regret.report().requests == lookups, "the cache was asked already"


@pytest.mark.parametrize("forward", ["features", "image"])
def test_a_photo_for_which_one_look_is_enough_makes_one_trip(
    cloud: ScriptedCloud, serve: Serve, forward: str
) -> None:
    with serve(forward=forward) as (edge, device):
        warm(edge, device, [0])
        cloud.received.clear()
        cloud.one_looks.clear()
        unknown = photo(77)
        request = RecognizeRequest(image=ImageInput(size_bytes=len(unknown), one_look=True))
        assert answer_of(device.send_raw(request, [unknown]).result(30)) == (None, "cloud")
        assert (cloud.received, cloud.one_looks) == ([forward], [forward == "image"])


def test_an_unknown_photo_counts_once_however_many_messages_it_took(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[bool] = []
    monkeypatch.setattr(OffloadChoice, "observe_outcome", lambda *_, **seen: outcomes.append(seen["unknown"]))
    with serve(forward="features") as (edge, device):
        warm(edge, device, [0])
        outcomes.clear()
        device.ask(photo(77))
        assert outcomes == [True], "features, then the photo"
        device.ask(features_of(photo(77)))
        device.send(photo(77), features_unknown=True).result(30)
        assert outcomes == [True], "there was no choice"
        device.ask(photo(1))
        assert outcomes == [True, False]


def test_where_photos_are_mostly_unknown_the_cloud_gets_each_once(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    asked = []
    for number in range(80):
        cloud.received.clear()
        assert device.ask(photo(77 + number % 3)) == (None, "cloud")
        asked.append(tuple(cloud.received))
    assert set(asked) <= {("features", "image"), ("image",)}
    assert asked[-20:].count(("image",)) >= 19, "but for a trial"


def test_the_cloud_gets_whichever_has_fewer_bytes(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [0])
    image = photo(1)
    features = sum(map(len, features_to_proto(features_of(image), 0)[1]))
    padded = image + bytes(max(0, features - len(image)) + 1)  # decoders ignore what follows a JPEG
    device.ask(padded)
    assert cloud.received[-1] == "features"
    tiny = features_of(image).strongest(20)
    device.ask(tiny)
    assert cloud.received[-1] == "features"
