import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from structlog.testing import capture_logs

from nearsight.common.clock import ManualClock
from nearsight.common.errors import ConfigurationError, PermissionDenied, Unauthenticated
from nearsight.common.files import replacing
from nearsight.common.rpc.allow_list import (
    Access,
    AllowList,
    Caller,
    Role,
    allow_client,
    forbid_client,
    list_key_files,
    read_caller,
)
from nearsight.common.rpc.security import generate_keys
from nearsight.common.rpc.service import CallContext
from nearsight.protos import echo_pb2
from support.rpc import Gate, Keys, ScriptedEcho, echo_stub_to, request_frames, serving, text
from support.waiting import wait_until

TCP = "tcp://127.0.0.1:0"


class RawClient:
    """A DEALER that does not reconnect, and reports the end of its connection."""

    def __init__(self, keys: Keys, name: str, endpoint: str) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.dealer = self.context.socket(zmq.DEALER)
        self.dealer.linger = 0
        keys.give_to(self.dealer, name)
        self.dealer.reconnect_ivl = -1
        self.changes = self.dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.dealer.connect(endpoint)
        assert self.changes.poll(60_000)
        self.changes.recv_multipart()

    def call(self) -> None:
        frames: Any = request_frames("x")
        self.dealer.send_multipart(frames)
        assert self.dealer.poll(60_000)
        self.dealer.recv_multipart()

    def is_cut(self) -> bool:
        return bool(self.changes.poll(0))

    def close(self) -> None:
        self.dealer.disable_monitor()
        self.changes.close()
        self.dealer.close()
        self.context.term()


@pytest.fixture
def raw(keys: Keys) -> Iterator[Any]:
    clients: list[RawClient] = []

    def connect(name: str, endpoint: str) -> RawClient:
        clients.append(RawClient(keys, name, endpoint))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.mark.parametrize("calls", [0, 1])
def test_idle_connections_of_a_forbidden_key_are_closed(keys: Keys, raw: Any, calls: int) -> None:
    keys.add("tablet")
    with serving(ScriptedEcho(), listen=TCP, security=keys.server) as server:
        phone, tablet = raw("phone", server.endpoint), raw("tablet", server.endpoint)
        tablet.call()
        for _ in range(calls):
            phone.call()
        forbid_client("phone", keys.allowed)
        wait_until(phone.is_cut, what="the cut")
        tablet.call()
        assert not tablet.is_cut()


def test_a_key_that_was_added_and_removed_between_two_checks_is_disconnected(keys: Keys, raw: Any) -> None:
    with serving(ScriptedEcho(), listen=TCP, security=keys.server) as server:
        server._background.stop(10.0)
        keys.add("tablet")
        tablet = raw("tablet", server.endpoint)
        forbid_client("tablet", keys.allowed)
        server._watch()
        wait_until(tablet.is_cut, what="the cut")


def test_a_queued_call_is_not_executed_after_its_key_was_forbidden(keys: Keys) -> None:
    keys.add("tablet")
    gate = Gate()
    echo = ScriptedEcho(gate)
    with (
        serving(echo, listen=TCP, security=keys.server, workers=1) as server,
        echo_stub_to(server.endpoint, keys.of("tablet")) as tablet,
        echo_stub_to(server.endpoint, keys.of("phone")) as phone,
    ):
        first = tablet.echo.future(text("first"), timeout_s=60)
        assert gate.entered.acquire(timeout=60)
        waiting = phone.echo_once.future(text("of the phone"), timeout_s=60)
        wait_until(lambda: server.queue_length == 1, what="the call in the queue")
        forbid_client("phone", keys.allowed)
        wait_until(waiting.done, what="the end of the phone's call")  # it lost its connection
        gate.open.set()
        assert first.result(60).message.text == "first"
        assert tablet.echo(text("last"), timeout_s=60).message.text == "last"
    assert echo.seen == ["first", "last"]


def test_a_running_handler_is_cancelled_when_its_key_is_forbidden(keys: Keys) -> None:
    ended = threading.Event()

    def work(request: echo_pb2.EchoRequest, context: CallContext) -> echo_pb2.EchoResponse:
        forbid_client("phone", keys.allowed)
        wait_until(context.cancelled, what="the cancellation")
        ended.set()
        return echo_pb2.EchoResponse()

    with (
        serving(ScriptedEcho(work), listen=TCP, security=keys.server) as server,
        echo_stub_to(server.endpoint, keys.of("phone")) as phone,
    ):
        future = phone.echo_once.future(text(), timeout_s=60)
        assert ended.wait(60)
        wait_until(future.done, what="the end of the call")


def test_a_key_that_is_allowed_again_is_served_at_once(keys: Keys, raw: Any) -> None:
    with (
        serving(ScriptedEcho(), listen=TCP, security=keys.server) as server,
        echo_stub_to(server.endpoint, keys.of("phone")) as stub,
    ):
        stub.echo(text(), timeout_s=60)
        watched = raw("phone", server.endpoint)
        forbid_client("phone", keys.allowed)
        wait_until(watched.is_cut, what="the cut")
        with pytest.raises(Unauthenticated):
            stub.echo(text(), timeout_s=60)
        allow_client(keys.folder / "phone.key", keys.allowed)
        assert stub.echo(text("again"), timeout_s=60).message.text == "again"


def test_a_stale_allow_list_is_refreshed_by_the_next_call(keys: Keys) -> None:
    allowed = AllowList(keys.allowed)
    forbid_client("phone", keys.allowed)
    assert allowed.clients
    with serving(ScriptedEcho(), listen=TCP, security=keys.server) as server:
        server._background.stop(10.0)
        allow_client(keys.folder / "phone.key", keys.allowed)
        with echo_stub_to(server.endpoint, keys.of("phone")) as stub:
            stub.echo(text(), timeout_s=60)
            forbid_client("phone", keys.allowed)

            def refused() -> bool:
                try:
                    stub.echo(text(), timeout_s=60)
                except Unauthenticated:
                    return True
                return False

            wait_until(refused, what="the refusal")


def test_a_file_that_is_replaced_by_one_of_equal_size_and_time_is_noticed(keys: Keys) -> None:
    allowed = AllowList(keys.allowed)
    (old,) = allowed.clients
    path = keys.allowed / "phone.key"
    status = path.stat()
    new = generate_keys(keys.folder, "other").public_key
    with path.open("r+") as file:  # in place: the same inode, too
        file.write(path.read_text().replace(old, new))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    allowed.refresh()
    assert set(allowed.clients) == {new}


def test_the_allow_list_follows_its_folder_and_skips_what_it_cannot_read(tmp_path: Path) -> None:
    folder = tmp_path / "allowed"
    with pytest.raises(ConfigurationError, match="nearsight keys allow"):
        AllowList(folder)
    a, b = generate_keys(tmp_path, "a"), generate_keys(tmp_path, "b")
    allow_client(a.public_file, folder)
    allowed = AllowList(folder)
    assert {one.name for one in allowed.clients.values()} == {"a"}
    (folder / "broken.key").write_text("rubbish")
    (folder / "loop.key").symlink_to("loop.key")
    (folder / "king.key").write_text((folder / "a.key").read_text().replace("reader", "king"))
    unchanged = allowed.clients[a.public_key]
    allow_client(b.public_file, folder, name="bob", role=Role.WRITER, catalogues=["museum", "gallery"])
    allowed.refresh()
    assert allowed.clients == {
        a.public_key: Caller("a", a.public_key),
        b.public_key: Caller("bob", b.public_key, Role.WRITER, ("museum", "gallery")),
    }
    assert allowed.clients[a.public_key] is unchanged
    forbid_client("a", folder)
    forbid_client("king", folder)
    allowed.refresh()
    assert a.public_key not in allowed.clients
    with pytest.raises(ConfigurationError, match="no client called 'a'"):
        forbid_client("a", folder)


def test_the_list_is_logged_only_after_a_change(tmp_path: Path) -> None:
    files, folder = generate_keys(tmp_path, "phone"), tmp_path / "allowed"
    folder.mkdir()
    with capture_logs() as logs:
        allowed = AllowList(folder)
        allowed.refresh()
        assert logs == [], "a server reads the folder twice per second"
        allow_client(files.public_file, folder)
        allowed.refresh()
        allowed.refresh()
        forbid_client("phone", folder)
        allowed.refresh()
        allowed.refresh()
    assert [line["clients"] for line in logs] == [1, 0]


def test_the_temporary_file_of_a_command_allows_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "allowed"
    reader = allow_client(generate_keys(tmp_path, "phone").public_file, folder)
    with replacing(folder / "phone.key") as aside:  # a killed command leaves it
        aside.write_text((folder / "phone.key").read_text().replace("reader", "writer"))
        assert AllowList(folder).clients == {reader.key: reader}
        assert [entry.name for entry in list_key_files(folder)] == ["phone"]


def test_unknown_keys_do_not_cause_the_key_files_to_be_read(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(time.time() + 60)  # the files are old
    allowed = AllowList(keys.allowed, clock)
    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", None)
        allowed.refresh_if_changed()
    keys.add("tablet")
    allowed.refresh_if_changed()
    assert {one.name for one in allowed.clients.values()} == {"phone", "tablet"}


def test_an_unreadable_folder_keeps_the_list_and_a_deleted_one_empties_it(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = AllowList(keys.allowed)
    before = allowed.clients

    def no_descriptors(path: Path) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("os.scandir", no_descriptors)
        allowed.refresh()
    assert allowed.clients is before
    keys.allowed.rename(keys.folder / "elsewhere")
    allowed.refresh()
    assert not allowed.clients


def test_allowing_copies_only_the_public_key_and_names_are_unique(tmp_path: Path) -> None:
    files = generate_keys(tmp_path, "phone")
    folder = tmp_path / "allowed"
    client = allow_client(files.secret_file, folder, name="phone")
    assert "secret-key" not in (folder / "phone.key").read_text()
    assert allow_client(files.public_file, folder) == client  # again is fine
    with pytest.raises(ConfigurationError, match="--name"):
        allow_client(files.public_key, folder)
    other = generate_keys(tmp_path / "elsewhere", "phone")
    with pytest.raises(ConfigurationError, match="another client called phone"):
        allow_client(other.public_file, folder)
    assert [e.name for e in list_key_files(folder)] == ["phone"]


def test_a_role_is_set_kept_and_changed(tmp_path: Path) -> None:
    files, folder = generate_keys(tmp_path, "phone"), tmp_path / "allowed"
    assert allow_client(files.public_file, folder).role is Role.READER
    changed = allow_client(files.public_file, folder, role=Role.WRITER, catalogues=["museum"])
    assert (changed.role, changed.catalogues) == (Role.WRITER, ("museum",))
    assert allow_client(files.public_file, folder) == changed
    # The file that the server has is a key file as well.
    assert allow_client(folder / "phone.key", folder, role=Role.READER).catalogues == ()
    with pytest.raises(ConfigurationError, match="is not a valid catalogue name"):
        allow_client(files.public_file, folder, catalogues=['a"\nrole = "writer'])


def test_one_key_reads_all_catalogues_and_changes_one(tmp_path: Path) -> None:
    files, folder = generate_keys(tmp_path, "curator"), tmp_path / "allowed"
    curator = allow_client(files.public_file, folder, writes=["museum"])
    assert AllowList(folder).clients == {files.public_key: curator}
    assert (curator.role, curator.catalogues, curator.writes) == (Role.WRITER, (), ("museum",))
    assert allow_client(files.public_file, folder) == curator
    for wanted in ("museum", ""):
        assert curator.catalogue_of(Access.CHANGES_CATALOGUE, wanted) == "museum"
    for name in ("gallery", "museum"):
        assert curator.catalogue_of(Access.READS_CATALOGUE, name) == name
    with pytest.raises(PermissionDenied, match=r"--role writer --writes museum --writes gallery$"):
        curator.catalogue_of(Access.CHANGES_CATALOGUE, "gallery")
    with pytest.raises(ConfigurationError, match="a reader cannot change catalogues"):
        allow_client(files.public_file, folder, role=Role.READER, writes=["museum"])
    narrowed = allow_client(files.public_file, folder, catalogues=["museum", "gallery"])
    assert (narrowed.role, narrowed.writes) == (Role.WRITER, ("museum",))
    for rights in ({"catalogues": ["gallery"]}, {"catalogues": ["museum"], "writes": ["museum", "gallery"]}):
        with pytest.raises(ConfigurationError, match="curator would change museum"):
            allow_client(files.public_file, folder, **rights)
    assert read_caller(folder / "curator.key") == narrowed
    assert allow_client(files.public_file, folder, role=Role.WRITER).writes == ()


def test_a_key_file_without_a_role_belongs_to_a_reader(tmp_path: Path) -> None:
    files = generate_keys(tmp_path, "phone")  # as every file was before there were roles
    assert read_caller(files.public_file) == Caller("phone", files.public_key, Role.READER)


def test_a_key_is_allowed_under_one_name_and_forbidding_names_copies_of_its_file(tmp_path: Path) -> None:
    files, folder = generate_keys(tmp_path, "phone"), tmp_path / "allowed"
    allow_client(files.public_file, folder)
    with pytest.raises(ConfigurationError, match="allowed already, under the name phone"):
        allow_client(files.public_file, folder, name="spare", overwrite=True)
    shutil.copy(files.public_file, folder / "spare.key")
    assert forbid_client("phone", folder) == ["spare"]
    assert forbid_client("spare", folder) == []


def test_two_damaged_files_with_the_same_error_have_no_key_in_common(tmp_path: Path) -> None:
    folder = tmp_path / "allowed"
    for name in ("phone", "tablet"):
        allow_client(generate_keys(tmp_path, name).public_file, folder)
        file = folder / f"{name}.key"
        file.write_text(file.read_text().replace("reader", "king"))
    assert forbid_client("phone", folder) == []
