"""Predicted next objects in the running edge: in answers, and for reports of local hits."""

import time
from itertools import pairwise

import pytest

from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.common.object_cache.next_objects import NextObjects, next_objects_from_proto
from nearsight.common.operation.explain import ask_explanations
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Reply
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.settings import CacheSettings, TransitionSettings
from support.edge import EdgeClient, ScriptedCloud, cache_of, photo, serving, warm
from support.waiting import LONG_S, wait_until

TOUR = ["00", "03", "01", "05"]


def following_of(reply: Reply) -> NextObjects:
    return next_objects_from_proto(reply.message.next_objects)


def walk(edge: EdgeDaemon, visitors: int = 3) -> None:
    """Report the tour by several devices."""
    cache_of(edge)
    for visitor in range(visitors):
        with EdgeClient(edge.endpoint, device_id=f"visitor {visitor}") as device:
            for name in TOUR:
                device.report(name)


def test_answers_of_cloud_and_cache_contain_the_next_objects(edge: EdgeDaemon, device: EdgeClient) -> None:
    device.ask(photo(0))
    walk(edge)
    for current, following in pairwise(TOUR):
        reply = device.send(photo(int(current))).result(LONG_S)
        assert following_of(reply).object_ids[0] == following
    warm(edge, device, [0])
    reply = device.send(photo(0)).result(LONG_S)
    assert reply.message.answered_by == "edge"
    assert following_of(reply).object_ids[0] == "03"
    assert reply.message.next_objects.revision == 1


def test_a_report_of_a_local_hit_is_counted_and_answered_with_the_next_objects(
    edge: EdgeDaemon, device: EdgeClient
) -> None:
    device.ask(photo(0))
    walk(edge)
    before = cache_of(edge).estimator.counts()["03"]
    assert device.report("03").object_ids[0] == "01"
    assert cache_of(edge).estimator.counts()["03"] == pytest.approx(before + 1, abs=0.1)


def test_the_answer_to_a_report_contains_the_time_of_a_photo(edge: EdgeDaemon, device: EdgeClient) -> None:
    device.ask(photo(77))
    cache_of(edge)
    assert device.send_report("00").message.answer_ms == 0, "the cache is empty"
    warm(edge, device, [0])
    took_ms = []
    for _ in range(20):  # as many as the edge remembers
        began_s = time.monotonic()
        device.ask(photo(0))
        took_ms.append(1e3 * (time.monotonic() - began_s))
    report = device.send_report("00")
    assert 0 < report.message.answer_ms - report.hops[-1].queue_ms <= max(took_ms)


def test_each_device_has_a_history_of_its_own(edge: EdgeDaemon, device: EdgeClient) -> None:
    device.ask(photo(0))
    cache_of(edge)
    with EdgeClient(edge.endpoint, device_id="other") as other:
        for mine, theirs in [("01", "04"), ("02", "05")] * 3:
            device.report(mine)
            other.report(theirs)
    assert device.report("01").object_ids[0] == "02", "not 05, the next report of another device"


def test_unknown_photos_predict_nothing(edge: EdgeDaemon, device: EdgeClient) -> None:
    reply = device.send(photo(77)).result(LONG_S)
    assert not reply.message.HasField("next_objects")


def test_a_report_of_an_unknown_object_is_refused(edge: EdgeDaemon, device: EdgeClient) -> None:
    device.ask(photo(0))
    cache_of(edge)
    with pytest.raises(NotFound, match="no-such"):
        device.report("no-such")
    with pytest.raises(InvalidArgument):
        device.report("")


def test_a_report_about_a_new_catalogue_creates_its_cache_and_predicts_nothing(
    edge: EdgeDaemon, device: EdgeClient
) -> None:
    assert len(device.report("00")) == 0
    cache_of(edge)
    device.report("00")
    assert "00" in cache_of(edge).estimator.counts()


def test_removed_objects_are_not_predicted(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    device.ask(photo(0))
    walk(edge)
    cloud.set_models([model for model in models if model.object_id != "03"])
    wait_until(lambda: cache_of(edge).listing.revision == 2, what="the new list")
    assert "03" not in device.report("00").object_ids


def test_the_setting_limits_the_length_of_predictions(
    cloud: ScriptedCloud, cache_settings: CacheSettings
) -> None:
    short = cache_settings.model_copy(update={"markov": TransitionSettings(top=2)})
    with serving(cloud, cache=short) as (edge, device):
        device.ask(photo(0))
        walk(edge)
        following = device.report("00")
        assert len(following) == 2
        assert following.remaining > 0


def test_the_edge_explains_its_decision(edge: EdgeDaemon, device: EdgeClient) -> None:
    (nothing,) = ask_explanations([edge.endpoint], timeout_s=LONG_S)
    assert (nothing.decisions, nothing.error) == ((), "")
    warm(edge, device, [0])
    (answer,) = ask_explanations([edge.endpoint], timeout_s=LONG_S)
    (decision,) = answer.decisions
    assert (decision.catalogue, decision.chosen.k, decision.object_ids) == ("museum", 1, ("00",))
    assert [one.k for one in decision.alternatives] == [0]
    assert dict(decision.facts)["cached objects"].startswith("1 of 6")
