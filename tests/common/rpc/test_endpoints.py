"""Addresses: their form, and the machines that they belong to."""

import socket

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.endpoints import (
    check_endpoint,
    endpoint_here,
    is_local,
    same_address,
    split_name,
)


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://127.0.0.1:7000",
        "tcp://127.1.2.3:0",
        "tcp://localhost:1",
        "tcp://[::1]:7000",
        "ipc:///tmp/x",
        "tcp://lo:5",
    ],
)
def test_addresses_of_this_machine_are_local(endpoint: str) -> None:
    assert is_local(check_endpoint(endpoint))


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://*:7000", "tcp://0.0.0.0:7000", "tcp://[::]:7000", "tcp://10.0.0.1:7000", "tcp://edge.example:1"],
)
def test_addresses_that_others_can_reach_are_not_local(endpoint: str) -> None:
    assert not is_local(check_endpoint(endpoint))


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "7000",
        "127.0.0.1:7000",
        "tcp://",
        "tcp://host",
        "tcp://host:70000",
        "udp://h:1",
        "ipc://",
        "tcp://a b:x",
    ],
)
def test_an_invalid_address_is_refused_with_an_example(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="tcp://HOST:PORT"):
        check_endpoint(endpoint)


def test_a_path_that_is_too_long_for_a_socket_is_refused() -> None:
    assert check_endpoint(f"ipc://{107 * 'x'}")
    with pytest.raises(ConfigurationError, match="path too long; choose one of at most 107 bytes"):
        check_endpoint(f"ipc://{106 * 'x'}é")


@pytest.mark.parametrize(
    ("listen", "endpoint"),
    [
        ("tcp://0.0.0.0:7000", "tcp://127.0.0.1:7000"),
        ("tcp://*:7000", "tcp://127.0.0.1:7000"),
        ("tcp://[::]:7000", "tcp://[::1]:7000"),
        ("tcp://10.0.0.5:7000", "tcp://10.0.0.5:7000"),
        ("tcp://localhost:7000", "tcp://localhost:7000"),
        ("tcp://lo:7000", "tcp://127.0.0.1:7000"),
        ("ipc:///run/edge", "ipc:///run/edge"),
        ("tcp://127.0.0.1:0", ""),
    ],
)
def test_a_daemon_that_listens_everywhere_or_at_an_interface_is_asked_at_an_address(
    listen: str, endpoint: str
) -> None:
    assert endpoint_here(listen) == endpoint


def test_the_endpoint_of_an_interface_without_an_address_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(9, "unplugged")])
    assert endpoint_here("tcp://unplugged:7000") == ""


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("tcp://edge.museum:7100", "edge.museum", "7100"),
        ("tcp://localhost:7100", "localhost", "7100"),
        ("tcp://127.0.0.1:7100", "", ""),
        ("tcp://[::1]:7100", "", ""),
        ("ipc:///tmp/edge", "", ""),
        ("inproc://edge", "", ""),
    ],
)
def test_only_names_are_looked_up(endpoint: str, host: str, port: str) -> None:
    assert split_name(endpoint) == (host, port)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("tcp://lab:1", "tcp://10.0.0.1:1", True),
        ("tcp://lab:1", "tcp://[fe80::1]:1", True),
        ("tcp://lab:1", "tcp://10.0.0.2:1", False),
        ("tcp://lab:1", "tcp://lab:2", False),
        ("tcp://unknown:1", "tcp://unknown:1", True),
        ("tcp://unknown:1", "tcp://lab:1", False),
        ("ipc:///lab", "ipc:///lab", True),
        ("ipc:///lab:1", "tcp://lab:1", False),
        ("tcp://lab:1", "", False),
    ],
)
def test_endpoints_are_the_same_if_port_and_an_address_are(
    monkeypatch: pytest.MonkeyPatch, one: str, other: str, same: bool
) -> None:
    def look_up(host: str, _port: object) -> list[tuple[object, ...]]:
        if host == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        addresses = {"10.0.0.1", "fe80::1"} if host == "lab" else {host}
        return [(0, 1, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert same_address(one, other) is same
