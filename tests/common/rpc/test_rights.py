"""Roles and catalogues of keys, and the calls that a server refuses because of them."""

from typing import Any

import pytest

from nearsight.__main__ import main
from nearsight.common.errors import InvalidArgument, PermissionDenied, Unauthenticated
from nearsight.common.rpc.allow_list import LOCAL, Access, Caller, Role, allow_client, read_caller
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.service import CallContext, Service, endpoints_of, python_name
from nearsight.protos import catalogue_pb2 as pb
from support.rpc import Keys, serving
from support.waiting import wait_until

TCP = "tcp://127.0.0.1:0"
CATALOGUE = pb.DESCRIPTOR.services_by_name["Catalogue"]


READ, CHANGE = Access.READS_CATALOGUE, Access.CHANGES_CATALOGUE


@pytest.mark.parametrize(
    ("caller", "access", "wanted", "expected"),
    [
        (LOCAL, CHANGE, "museum", "museum"),
        (Caller("a", "k"), READ, "museum", "museum"),
        (Caller("a", "k"), READ, "", ""),
        (Caller("a", "k"), CHANGE, "museum", PermissionDenied),
        (Caller("a", "k"), CHANGE, "", PermissionDenied),
        (Caller("a", "k", Role.WRITER), CHANGE, "museum", "museum"),
        (Caller("a", "k", Role.READER, ("museum",)), READ, "museum", "museum"),
        (Caller("a", "k", Role.READER, ("museum",)), READ, "", "museum"),
        (Caller("a", "k", Role.READER, ("museum",)), READ, "gallery", PermissionDenied),
        (Caller("a", "k", Role.READER, ("museum",)), CHANGE, "museum", PermissionDenied),
        (Caller("a", "k", Role.WRITER, ("museum",)), CHANGE, "", "museum"),
        (Caller("a", "k", Role.WRITER, ("museum",)), CHANGE, "gallery", PermissionDenied),
        (Caller("a", "k", Role.READER, ("museum", "gallery")), READ, "", InvalidArgument),
        (Caller("a", "k", Role.READER, ("museum", "gallery")), Access.NO_CATALOGUE, "", ""),
    ],
)
def test_a_role_decides_what_a_key_may_do(
    caller: Caller, access: Access, wanted: str, expected: str | type[Exception]
) -> None:
    if isinstance(expected, str):
        assert caller.catalogue_of(access, wanted) == expected
    else:
        with pytest.raises(expected):
            caller.catalogue_of(access, wanted)


READER_OF_ALL, WRITER_OF_ALL = Caller("a", "k"), Caller("a", "k", Role.WRITER)
READER, WRITER = (Caller("a", "k", role, ("museum", "shop")) for role in Role)
WRITER_OF_ONE = Caller("a", "k", Role.WRITER, ("museum",))
WRITES_ONE = Caller("a", "k", Role.WRITER, (), ("museum",))


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (WRITER_OF_ALL, READER, True),
        (WRITER_OF_ALL, WRITER_OF_ONE, True),
        (WRITER, WRITER_OF_ONE, True),
        (WRITER_OF_ONE, WRITER, False),
        (WRITES_ONE, WRITER_OF_ONE, True),
        (WRITES_ONE, READER_OF_ALL, True),
        (WRITES_ONE, WRITER_OF_ALL, False),
        (WRITER_OF_ALL, WRITES_ONE, True),
        (WRITER_OF_ONE, READER_OF_ALL, False),
        (READER_OF_ALL, WRITER_OF_ONE, False),
        (READER, READER_OF_ALL, False),
    ],
)
def test_work_in_progress_continues_unless_a_right_was_removed(
    now: Caller, before: Caller, expected: bool
) -> None:
    assert now.has_rights_of(before) is expected


class Recorder(Service):
    """A catalogue service that records the calls that it receives."""

    descriptor = CATALOGUE

    def __init__(self) -> None:
        self.reached: list[tuple[str, str, str]] = []

    def __getattr__(self, method: str) -> Any:
        response = next(m.output_type for m in CATALOGUE.methods if python_name(m) == method)

        def handle(request: Any, context: CallContext) -> Any:
            self.reached.append((context.caller.name, method, context.catalogue))
            return getattr(pb, response.name)()

        return handle


def test_a_server_refuses_calls_beyond_the_role_before_they_are_executed(keys: Keys) -> None:
    keys.add("curator", role=Role.WRITER, catalogues=["museum"])
    service = Recorder()
    with serving(service, listen=TCP, security=keys.server) as server:

        def call(name: str, method: str, request: Any, catalogue: str) -> None:
            with Channel(server.endpoint, client_id=name, security=keys.of(name)) as channel:
                getattr(Stub(channel, CATALOGUE), method)(request, timeout_s=60, catalogue=catalogue)

        call("phone", "list_objects", pb.ListObjectsRequest(), "gallery")
        with pytest.raises(
            PermissionDenied, match=r"nearsight keys allow phone\.key --dir \. --role writer$"
        ):
            call("phone", "remove_objects", pb.RemoveObjectsRequest(), "museum")
        with pytest.raises(PermissionDenied, match="reader"):
            call("phone", "add_objects", pb.AddObjectsRequest(), "forged")
        call("curator", "add_objects", pb.AddObjectsRequest(), "")
        with pytest.raises(PermissionDenied, match="'gallery'"):
            call("curator", "add_objects", pb.AddObjectsRequest(), "gallery")
        with pytest.raises(PermissionDenied, match=r"writer --catalogue museum --catalogue gallery$"):
            call("curator", "list_objects", pb.ListObjectsRequest(), "gallery")
        # Rights change without a restart of the server and without a new connection.
        with Channel(server.endpoint, client_id="phone", security=keys.of("phone")) as channel:
            stub = Stub(channel, CATALOGUE)
            stub.list_objects(pb.ListObjectsRequest(), timeout_s=60, catalogue="museum")
            allow_client(keys.folder / "phone.key", keys.allowed, role=Role.WRITER)

            def may_write() -> bool:
                try:
                    stub.add_objects(pb.AddObjectsRequest(), timeout_s=60, catalogue="museum")
                except Unauthenticated:
                    return False
                return True

            wait_until(may_write, what="the new role")
    assert service.reached == [
        ("phone", "list_objects", "gallery"),
        ("curator", "add_objects", "museum"),
        ("phone", "list_objects", "museum"),
        ("phone", "add_objects", "museum"),
    ]


def test_the_advice_gives_the_missing_right(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    keys.add("curator", role=Role.WRITER, catalogues=["museum"])
    with pytest.raises(PermissionDenied) as refused:
        read_caller(keys.allowed / "curator.key").catalogue_of(CHANGE, "gallery")
    monkeypatch.chdir(keys.allowed)  # "in the server's folder of allowed clients"
    assert main(refused.value.advice.partition("run: nearsight ")[2].split()) == 0
    assert read_caller(keys.allowed / "curator.key").catalogue_of(CHANGE, "gallery") == "gallery"


def test_every_method_of_the_catalogue_service_declares_its_access() -> None:
    methods = endpoints_of([Recorder()])
    assert {name: endpoint.method.access for (_, name), endpoint in methods.items()} == {
        "GetObjectModels": READ,
        "ListObjects": READ,
        "ListCatalogues": Access.NO_CATALOGUE,
        "AddObjects": CHANGE,
        "RemoveObjects": CHANGE,
        "RemoveCatalogue": CHANGE,
    }
