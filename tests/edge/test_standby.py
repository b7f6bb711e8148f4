"""The standby of an edge whose cloud dies, hangs, returns and changes its catalogue."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from nearsight.common.errors import InvalidArgument, NotFound, Overloaded, Unavailable
from nearsight.common.recognition.models import Features, ObjectModel
from nearsight.common.recognition.results import RecognitionResult
from nearsight.common.request.next_tiers import BreakerState
from nearsight.edge import services
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.standby import standby
from support.edge import (
    CATALOGUE,
    EXHIBITS,
    EdgeClient,
    ScriptedCloud,
    Serve,
    answer_of,
    cache_of,
    exhibit,
    features_of,
    photo,
    wait_for_standby,
)
from support.pictures import broken_images
from support.waiting import LONG_S, wait_until

STANDBY_MB = 50


pytestmark = pytest.mark.usefixtures("eager_standbys")


@pytest.fixture
def served(serve: Serve, cloud: ScriptedCloud) -> Iterator[tuple[EdgeDaemon, EdgeClient]]:
    """An edge with an empty cache, and all objects in its standby."""
    with serve(standby_mb=STANDBY_MB) as (edge, device):
        assert device.ask(photo(77)) == (None, "cloud")  # no object is popular
        wait_for_standby(edge, EXHIBITS)
        yield edge, device


def facts(edge: EdgeDaemon) -> dict[str, str]:
    return dict(edge.details())


def test_while_the_cloud_answers_the_standby_is_not_used(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud
) -> None:
    edge, device = served
    assert [device.ask(photo(number))[1] for number in range(1, 4)] == ["cloud"] * 3
    assert "used only while the cloud is unreachable" in facts(edge)[f"{CATALOGUE}: standby"]


def test_during_an_outage_of_the_cloud_the_standby_recognises_all_objects(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud
) -> None:
    edge, device = served
    cloud.stop()
    assert [device.ask(photo(number)) for number in range(EXHIBITS)] == [
        (f"{number:02d}", "edge") for number in range(EXHIBITS)
    ]
    assert device.ask(features_of(photo(3))) == ("03", "edge")
    assert device.ask(photo(77)) == (None, "edge"), "the standby is complete, so unknown is an answer"
    wait_until(lambda: "unreachable for" in facts(edge)["cloud"], what="the detection of the outage")
    assert "answers for 6 of 6 objects" in facts(edge)[f"{CATALOGUE}: standby"]
    assert edge.ready()


def test_a_photo_that_is_searched_during_a_build_is_searched_in_the_new_index_too(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud
) -> None:
    edge, device = served
    cloud.stop()
    ours = edge.standbys.get(CATALOGUE)
    assert ours is not None
    complete = ours._index

    def recognize(features: Features) -> RecognitionResult:
        ours._index = complete
        return RecognitionResult(None, 0.0, 0.0)

    ours._index = Mock(recognize=recognize)
    assert device.ask(features_of(photo(3))) == ("03", "edge")


def test_invalid_images_are_refused_during_an_outage(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud
) -> None:
    _, device = served
    cloud.stop()
    for name, image in broken_images().items():
        if name in {"black", "1 x 1"}:
            assert device.ask(image) == (None, "edge")
        else:
            with pytest.raises(InvalidArgument):
                device.send(image).result(LONG_S)
    assert device.ask(photo(1)) == ("01", "edge")


def test_requests_in_flight_when_the_cloud_dies_are_answered_by_the_standby(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud
) -> None:
    _, device = served
    cloud.recognize_error = Unavailable("the cloud stops")
    cloud.gate.clear()
    waiting = [device.send(photo(number % EXHIBITS)) for number in range(20)]
    wait_until(lambda: len(cloud.received) > 1, what="requests at the cloud")
    cloud.stop()
    answers = [answer_of(future.result(LONG_S)) for future in waiting]
    assert answers == [(f"{number % EXHIBITS:02d}", "edge") for number in range(20)]


def test_a_cloud_that_does_not_answer_is_asked_for_a_limited_time_and_then_cools_down(
    serve: Serve, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_MOST_S", 0.5)
    with serve(standby_mb=STANDBY_MB) as (edge, device):
        device.ask(photo(77))
        wait_for_standby(edge, EXHIBITS)
        cloud.gate.clear()
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda number: device.ask(photo(number)), range(4)))
        assert answers == [(f"{number:02d}", "edge") for number in range(4)]
        assert edge.caches.services.next_tiers.states()["cloud"] is BreakerState.COOLING


def test_stopping_an_edge_whose_cloud_hangs_logs_no_error(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud, caplog: pytest.LogCaptureFixture
) -> None:
    edge, device = served
    asked = len(cloud.received)
    cloud.gate.clear()
    answer = device.send(photo(1))
    wait_until(lambda: len(cloud.received) > asked, what="a request at the cloud")
    edge.stop(0.0)
    with pytest.raises(Unavailable, match="stopping"):
        answer.result(LONG_S)
    assert not caplog.records


def test_the_standby_answers_for_an_overloaded_cloud(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud
) -> None:
    _, device = served
    cloud.recognize_error = Overloaded("too many requests")
    assert device.ask(photo(2)) == ("02", "edge")


def test_a_not_found_error_of_the_cloud_is_not_replaced(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud
) -> None:
    _, device = served
    cloud.recognize_error = NotFound("there is no such catalogue any more")
    with pytest.raises(NotFound):
        device.send(photo(2)).result(LONG_S)


def test_after_an_outage_the_cloud_answers_and_the_standby_is_updated(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    edge, device = served
    endpoint = cloud.endpoint
    cloud.stop()
    for _ in range(5):
        assert device.ask(photo(1)) == ("01", "edge")
    wait_until(lambda: edge.caches.cloud_lost, what="the cloud lost")
    back = ScriptedCloud(models, listen=endpoint)
    back.set_models([*models[1:], exhibit(7)])
    try:
        wait_until(lambda: device.ask(photo(77)) == (None, "cloud"), what="an answer of the cloud")
        wait_until(lambda: "07" in cache_of(edge).supply.standby, what="the new object")
        wait_for_standby(edge, EXHIBITS)
    finally:
        back.stop()
    assert device.ask(photo(7)) == ("07", "edge")
    assert device.ask(photo(0)) == (None, "edge"), "it was removed"


def test_removed_objects_are_not_recognised_before_the_next_build(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud
) -> None:
    edge, device = served
    ours = edge.standbys.get(CATALOGUE)
    assert ours is not None
    ours._build = lambda *_, **__: 60.0  # type: ignore[method-assign]
    cloud.set_models([exhibit(number) for number in range(1, EXHIBITS)])
    wait_until(lambda: "00" not in cache_of(edge).listing.versions, what="a new listing")
    cloud.stop()
    assert device.ask(photo(0)) == (None, "edge")
    assert device.ask(photo(1)) == ("01", "edge")


def test_a_model_that_cannot_be_fetched_affects_no_other(serve: Serve, cloud: ScriptedCloud) -> None:
    cloud.malformed.add("00")
    with serve(standby_mb=STANDBY_MB) as (edge, device):
        assert device.ask(photo(1)) == ("01", "cloud")
        wait_for_standby(edge, EXHIBITS - 1)
        cloud.stop()
        assert device.ask(photo(5)) == ("05", "edge")
        with pytest.raises(Unavailable, match="cloud"):
            device.send(photo(0)).result(LONG_S)


def test_a_small_standby_holds_the_most_popular_objects(serve: Serve, cloud: ScriptedCloud) -> None:
    with serve(standby_mb=STANDBY_MB) as (edge, device):
        for number in (4, 4, 4, 2, 2):
            device.ask(photo(number))
        wait_for_standby(edge, EXHIBITS)
        one_bytes = edge.standbys.size_bytes / EXHIBITS
        edge.standbys.budget_bytes = 2.5 * one_bytes
        wait_for_standby(edge, 2)
        assert set(cache_of(edge).supply.standby) == {"02", "04"}
        assert edge.standbys.size_bytes <= 2.5 * one_bytes


def test_a_complete_standby_makes_no_plans_until_the_catalogue_changes(
    served: tuple[EdgeDaemon, EdgeClient], cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge, _ = served
    ours = edge.standbys.get(CATALOGUE)
    assert ours is not None
    wait_until(lambda: ours._fitting is not None, what="a plan of all models")
    chosen, settled = Mock(side_effect=standby.choose), Mock(side_effect=ours._settle)
    monkeypatch.setattr(standby, "choose", chosen)
    monkeypatch.setattr(ours, "_settle", settled)
    wait_until(lambda: settled.call_count > 3, what="rounds")
    assert not chosen.called
    cloud.set_models([exhibit(number) for number in range(1, EXHIBITS)])
    wait_for_standby(edge, EXHIBITS - 1)
    assert chosen.called


def test_without_memory_there_is_no_standby(serve: Serve, cloud: ScriptedCloud) -> None:
    with serve() as (edge, device):
        assert device.ask(photo(0)) == ("00", "cloud")
        assert cloud.fetched_ids() in ([], ["00"])
        assert edge.standbys.why(CATALOGUE) == "none, as standby_mb is 0"


def test_the_reason_for_an_empty_cache_mentions_the_standby(
    served: tuple[EdgeDaemon, EdgeClient],
) -> None:
    edge, _ = served
    why = facts(edge)[f"{CATALOGUE}: why empty"]
    assert why.endswith("; the standby of 6 objects answers during an outage of the cloud")
