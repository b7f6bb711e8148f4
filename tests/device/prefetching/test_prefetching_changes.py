"""Changed objects and an unreachable edge while devices hold models: real sockets and recognition."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from nearsight import NearsightError, Recognizer
from nearsight.device.prefetching.profiler import AvoidableLatency
from support.child_server import child_server
from support.gallery import exhibit_model, exhibit_models
from support.predicting_edge import PredictingEdge
from support.prefetching_devices import QUICK, Scene, holds, make_misses_costly, name, photo, settings
from support.waiting import wait_until


def test_an_object_that_was_replaced_is_never_answered_in_its_old_version_after_the_sync(
    scene: Scene,
) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    new = replace(exhibit_model(1), version=2, label="restored")
    scene.edge.set_models([new if model.object_id == name(1) else model for model in exhibit_models(5)])
    assert device.recognize_blocking(photo(0)).answered_by == "device"  # its report brings the new revision
    wait_until(lambda: scene.edge.listings == 1, what="the sync")
    wait_until(lambda: scene.edge.fetched.count(name(1)) == 2, what="the new model")
    holds(device, 5)
    found = device.recognize_blocking(photo(1))
    assert (found.label, found.object.version if found.object else 0) == ("restored", 2)
    assert scene.edge.fetched.count(name(2)) == 1, "it has not changed"


def test_models_of_a_catalogue_that_was_begun_anew_replace_those_of_the_old_one(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    new = [replace(model, label=f"new {model.label}") for model in exhibit_models(5)]  # in the same versions
    scene.edge.set_models(new)
    assert device.recognize_blocking(photo(0)).answered_by == "device"  # its report brings the new revision
    wait_until(lambda: scene.edge.listings == 1, what="the sync")
    wait_until(lambda: scene.edge.fetched.count(name(1)) == 2, what="the new model")
    holds(device, 5)
    assert device.recognize_blocking(photo(1)).label == new[1].label


def test_an_object_that_was_removed_is_never_answered_after_the_sync(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.set_models([model for model in exhibit_models(5) if model.object_id != name(1)])
    device.recognize_blocking(photo(0))
    holds(device, 4)
    assert not device.recognize_blocking(photo(1)).known
    device.recognize_blocking(photo(2))
    device.recognize_blocking(photo(0))  # snapshots that were kept have lost it too
    assert not device.recognize_blocking(photo(1)).known


def test_a_removed_object_is_dropped_without_other_requests(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.set_models(exhibit_models(5)[1:])
    wait_until(lambda: not device.recognize_blocking(photo(0)).known, what="the object gone")


def test_a_newer_version_that_the_edge_answers_with_leads_to_a_sync(scene: Scene) -> None:
    device = scene.device(settings(k_max=1))
    device.recognize_blocking(photo(0))
    holds(device, 1)
    device.recognize_blocking(photo(1))
    wait_until(lambda: device.recognize_blocking(photo(1)).answered_by == "device", what="its model")
    scene.edge.set_models([replace(exhibit_model(0), version=7), *exhibit_models(5)[1:]], bump=False)
    wait_until(
        lambda: (found := device.recognize_blocking(photo(0)).object) is not None and found.version == 7,
        what="the new version",
    )
    wait_until(lambda: scene.edge.listings > 0, what="the sync: what is held is older")


def test_while_the_edge_is_unreachable_all_held_models_answer(scene: Scene) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.predict = lambda _: scene.edge.prediction({name(1): 0.99})
    device.recognize_blocking(photo(0))
    holds(device, 2)
    scene.edge.stop()
    assert device.recognize_blocking(photo(0)).answered_by == "device"
    holds(device, 5)


@pytest.mark.parametrize("empty", [False, True])
def test_held_models_that_no_snapshot_has_answer_if_no_tier_does(
    scene: Scene, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    device = scene.device()
    device.recognize_blocking(photo(0))
    holds(device, 5)
    if empty:
        monkeypatch.setattr(AvoidableLatency, "median_ms", 0.0)  # the edge answers faster than a lookup
    else:
        scene.edge.predict = lambda _: scene.edge.prediction({name(1): 0.99})
    device.recognize_blocking(photo(0))
    chosen = 0 if empty else 2
    holds(device, chosen)
    scene.edge.stop()
    wait_until(lambda: _answered(device, 3, "device"), what="an answer of the device")
    holds(device, 5)
    again = PredictingEdge(exhibit_models(5), scene.edge.endpoint)
    stack.callback(again.stop)
    again.predict = scene.edge.predict
    wait_until(lambda: device.recognize_blocking(photo(0)).known and _k(device) <= chosen, what="a decision")


def test_the_edge_may_stop_and_restart(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    make_misses_costly(monkeypatch)
    with child_server("predicting-edge") as first:
        endpoint = first.endpoint
        device = Recognizer(endpoint, None, "museum", settings=QUICK)
        with device:
            device.recognize_blocking(photo(0))
            holds(device, 3)
            first.kill()
            for number in (0, 1, 2, 1):
                assert device.recognize_blocking(photo(number)).answered_by == "device"
            with pytest.raises(NearsightError):
                device.recognize_blocking(photo(77))
            stack.callback(PredictingEdge(exhibit_models(3), endpoint).stop)
            wait_until(lambda: _answered(device, 77), what="an answer of the new edge")
            assert device.recognize_blocking(photo(2)).answered_by == "device"


def _k(device: Recognizer) -> int:
    state = device.prefetch_state
    assert state is not None
    return state.k


def _answered(device: Recognizer, number: int, tier: str = "edge") -> bool:
    try:
        return device.recognize_blocking(photo(number)).answered_by == tier
    except NearsightError:
        return False


def test_without_the_edge_the_cloud_answers_unknown_photos(scene: Scene) -> None:
    cloud, endpoint = scene.scripted("cloud")
    device = scene.device(cloud=endpoint)
    device.recognize_blocking(photo(0))
    holds(device, 5)
    scene.edge.stop()
    assert device.recognize_blocking(photo(1)).answered_by == "device"
    assert device.recognize_blocking(photo(77)).answered_by == "cloud"
    assert len(cloud.contexts) == 1


def test_predictions_of_an_object_are_used_while_the_edge_is_unreachable(scene: Scene) -> None:
    scene.edge.predict = lambda current: scene.edge.prediction(
        {name(1 - int(current[-1])) if int(current[-1]) < 2 else name(0): 0.9}
    )
    device = scene.device(settings(k_max=2))
    device.recognize_blocking(photo(0))
    holds(device, 2)
    device.recognize_blocking(photo(1))
    wait_until(lambda: name(1) in str(scene.edge.reported), what="the report")
    scene.edge.stop()
    for number in (0, 1, 0, 1):
        assert device.recognize_blocking(photo(number)).answered_by == "device"
    explanation = device.explain()
    assert explanation is not None
    assert set(explanation.object_ids) == {name(0), name(1)}
