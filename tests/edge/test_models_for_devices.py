"""Object models for devices: one request to the cloud per object, partial answers, removals."""

import threading
from concurrent.futures import Future

import pytest

from nearsight.common.catalogue.answers import FetchedModels, models_of
from nearsight.common.errors import InvalidArgument, NotFound, Unavailable
from nearsight.common.recognition.codec import model_digest
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Reply
from nearsight.edge import model_supply
from nearsight.edge.daemon import EdgeDaemon
from nearsight.edge.load import LoadControl
from nearsight.edge.settings import FetchSettings
from nearsight.protos import catalogue_pb2 as pb
from support.edge import (
    CATALOGUE,
    EXHIBITS,
    EdgeClient,
    ScriptedCloud,
    Serve,
    cache_of,
    cached,
    edge_server,
    exhibit,
    photo,
    serving,
    warm,
)
from support.objects import same_model
from support.waiting import LONG_S, wait_until

ALL = [f"{number:02d}" for number in range(EXHIBITS)]


def fetch(device: EdgeClient, object_ids: list[str]) -> Future[Reply]:
    request = pb.GetObjectModelsRequest(object_ids=object_ids)
    future: Future[Reply] = device.catalogues.get_object_models.future(
        request, timeout_s=LONG_S, catalogue=device.catalogue
    )
    return future


def models_for(device: EdgeClient, object_ids: list[str]) -> FetchedModels:
    return models_of(fetch(device, object_ids).result(LONG_S), object_ids)


@pytest.fixture
def early_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The edge answers devices after a small share of their timeout."""
    monkeypatch.setattr(model_supply, "_SHARE_OF_DEADLINE", 0.005)


def ids_of(fetched: FetchedModels) -> list[str]:
    return [model.object_id for model in fetched.models]


def test_a_device_gets_models_in_the_requested_order(device: EdgeClient, models: list[ObjectModel]) -> None:
    fetched = models_for(device, ["03", "01"])
    assert ids_of(fetched) == ["03", "01"]
    assert fetched.revision == 1
    assert same_model(fetched.models[0], models[3])


def test_models_for_many_devices_are_fetched_once_per_object(edge: EdgeDaemon, cloud: ScriptedCloud) -> None:
    devices = [EdgeClient(edge.endpoint, device_id=f"device {number}") for number in range(8)]
    try:
        waiting = [fetch(device, ALL[number % 3 :]) for number, device in enumerate(devices)]
        for number, future in enumerate(waiting):
            assert ids_of(models_of(future.result(LONG_S), ALL)) == ALL[number % 3 :]
        for device in devices:
            assert ids_of(models_for(device, ALL)) == ALL
    finally:
        for device in devices:
            device.channel.close()
    assert sorted(cloud.fetched_ids()) == ALL


def test_models_of_cached_objects_are_not_fetched_again(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    warm(edge, device, [2])
    assert ids_of(models_for(device, ["02"])) == ["02"]
    assert cloud.fetched_ids() == ["02"]


def test_models_fetched_for_devices_are_used_for_the_cache(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    models_for(device, ["02"])
    warm(edge, device, [2])
    assert cloud.fetched_ids() == ["02"]


def test_a_model_that_never_arrives_does_not_delay_the_others(cloud: ScriptedCloud, serve: Serve) -> None:
    cloud.silent = {"03"}
    one_by_one = FetchSettings(batch=1, parallel=2, timeout_s=600.0, patience_s=0.1)
    with serve(fetch=one_by_one) as (_, device):
        fetched = models_for(device, ["03", "00", "01"])
        assert "00" in ids_of(fetched)
        assert "03" in fetched.left_out
        wait_until(lambda: "01" in ids_of(models_for(device, ["01", "03"])), what="the other model")


@pytest.mark.system
@pytest.mark.usefixtures("early_answers")
def test_models_that_never_arrive_block_no_other_requests(cloud: ScriptedCloud, serve: Serve) -> None:
    """Two silent requests fill both places, and a third shares its request with two other models."""
    cloud.silent = {"03", "04", "05"}
    patient = FetchSettings(batch=3, parallel=2, timeout_s=600.0, patience_s=0.1)
    with serve(fetch=patient) as (_, device):
        assert ids_of(models_for(device, ["02"])) == ["02"]  # measures the usual time of a fetch
        for silent in ("03", "04"):
            assert ids_of(models_for(device, [silent])) == []
        models_for(device, ["05", "00", "01"])
        wait_until(
            lambda: ids_of(models_for(device, ["00", "01"])) == ["00", "01"],
            what="the other models",
        )


@pytest.mark.usefixtures("early_answers")
def test_models_that_arrive_after_the_answer_to_the_device_are_kept(
    cloud: ScriptedCloud, serve: Serve
) -> None:
    cloud.models_gate.clear()
    with serve(fetch=FetchSettings(timeout_s=600.0)) as (edge, device):
        assert ids_of(models_for(device, ["00"])) == []
        cloud.models_gate.set()
        wait_until(lambda: cache_of(edge).supply.held("00") is not None, what="the late model")
        assert cloud.fetched_ids() == ["00"]


def test_damaged_models_are_left_out(edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud) -> None:
    cloud.malformed = {"03"}
    fetched = models_for(device, ["03", "00"])
    assert (ids_of(fetched), fetched.left_out) == (["00"], ("03",))
    cloud.malformed = set()
    wait_until(lambda: ids_of(models_for(device, ["03"])) == ["03"], what="the repeated fetch")


@pytest.mark.usefixtures("early_answers")
def test_if_nothing_can_be_fetched_the_device_gets_an_answer_before_its_deadline(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud
) -> None:
    cloud.silent = set(ALL)
    fetched = models_for(device, ["00"])
    assert (ids_of(fetched), fetched.left_out) == ([], ("00",))
    cloud.fetch_errors, cloud.silent = dict.fromkeys(ALL, Unavailable("no")), set()
    assert models_for(device, ["01"]).left_out == ("01",)


def test_unknown_objects_are_reported_as_missing(device: EdgeClient, cloud: ScriptedCloud) -> None:
    fetched = models_for(device, ["no-such", "00"])
    assert (ids_of(fetched), fetched.missing) == (["00"], ("no-such",))
    assert "no-such" not in cloud.fetched_ids()


def test_removed_objects_are_not_sent_after_the_next_sync(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    warm(edge, device, [0, 1])
    assert ids_of(models_for(device, ALL)) == ALL
    cloud.set_models(models[1:-1])
    wait_until(lambda: cache_of(edge).listing.revision == 2, what="the new list")
    fetched = models_for(device, ALL)
    assert ids_of(fetched) == ALL[1:-1]
    assert sorted(fetched.missing) == [ALL[0], ALL[-1]]
    assert fetched.revision == 2
    library = cache_of(edge).supply.library
    wait_until(lambda: library.get(ALL[-1]) is None, what="the model dropped")


def test_after_a_replacement_devices_get_the_new_version(
    edge: EdgeDaemon, device: EdgeClient, cloud: ScriptedCloud, models: list[ObjectModel]
) -> None:
    assert models_for(device, ["00"]).models[0].version == 1
    cloud.set_models([exhibit(0, version=2, picture=20), *models[1:]])
    wait_until(lambda: cache_of(edge).listing.revision == 2, what="the new list")
    assert models_for(device, ["00"]).models[0].version == 2


def test_an_answer_with_too_many_models_names_the_rest(serve: Serve, models: list[ObjectModel]) -> None:
    room = edge_server(max_message_bytes=5 * models[0].size_bytes)
    with serve(server=room) as (_, device):
        fetched = models_for(device, ALL)
        assert 1 <= len(fetched.models) < EXHIBITS
        assert ids_of(fetched) + list(fetched.left_out) == ALL
        rest = models_for(device, list(fetched.left_out))
        assert rest.models


def test_the_edge_lists_the_catalogue_as_the_cloud(device: EdgeClient, models: list[ObjectModel]) -> None:
    listed = device.catalogues.list_objects(
        pb.ListObjectsRequest(), timeout_s=LONG_S, catalogue=CATALOGUE
    ).message
    assert [(entry.object_id, entry.label) for entry in listed.objects] == [
        (model.object_id, model.label) for model in models
    ]
    digests = {entry.object_id: entry.model_digest for entry in listed.objects}
    assert digests == {model.object_id: model_digest(model) for model in models_for(device, ALL).models}
    catalogues = device.catalogues.list_catalogues(pb.ListCataloguesRequest(), timeout_s=LONG_S).message
    assert [(one.name, one.objects) for one in catalogues.catalogues] == [(CATALOGUE, EXHIBITS)]


def test_an_edge_lists_the_catalogues_of_its_cloud_once_it_has_reached_it(
    serve: Serve, cloud: ScriptedCloud
) -> None:
    cloud.catalogues_error = Unavailable("still loading")
    with serve() as (edge, device):

        def listed() -> list[tuple[str, int]]:
            reply = device.catalogues.list_catalogues(pb.ListCataloguesRequest(), timeout_s=LONG_S)
            return [(one.name, one.objects) for one in reply.message.catalogues]

        with pytest.raises(Unavailable, match="the catalogues of the cloud are not known"):
            listed()
        cloud.catalogues_error = None
        wait_until(lambda: not edge.caches.cloud_problem, what="the listing of the cloud")
        assert listed() == [(CATALOGUE, EXHIBITS)]
        assert edge.caches.all() == ()


def test_unknown_catalogues_are_not_found(edge: EdgeDaemon) -> None:
    with EdgeClient(edge.endpoint, catalogue="no-such") as device, pytest.raises(NotFound):
        models_for(device, ["00"])
    assert edge.caches.all() == ()


def test_an_edge_does_not_change_catalogues(device: EdgeClient) -> None:
    with pytest.raises(InvalidArgument, match="does not change"):
        device.catalogues.remove_objects(
            pb.RemoveObjectsRequest(object_ids=["00"]), timeout_s=LONG_S, catalogue=CATALOGUE
        )
    with pytest.raises(InvalidArgument, match="does not change"):
        device.catalogues.add_objects(pb.AddObjectsRequest(), timeout_s=LONG_S, catalogue=CATALOGUE)


def test_too_many_ids_are_refused(device: EdgeClient) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        models_for(device, [str(number) for number in range(10_001)])


def test_models_for_devices_are_not_cached_for_recognition(edge: EdgeDaemon, device: EdgeClient) -> None:
    models_for(device, ALL)
    assert cached(edge) == set()


def test_models_do_not_wait_behind_photos(cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices with models send fewer photos."""
    held, release = threading.Event(), threading.Event()
    may_work = LoadControl.may_work

    def slow(self: LoadControl) -> bool:
        held.set()
        assert release.wait(LONG_S)
        return may_work(self)

    monkeypatch.setattr(LoadControl, "may_work", slow)
    with serving(cloud, server=edge_server(workers=1)) as (_, device):
        sent = [device.send(photo(1)) for _ in range(3)]
        assert held.wait(LONG_S)
        assert ids_of(models_for(device, ["03"])) == ["03"]
        assert not any(future.done() for future in sent)
        release.set()
        for future in sent:
            future.result(LONG_S)
