"""Names of hosts: looked up in the background, one lookup per name at a time, with a timeout."""

import socket
import threading
from collections.abc import Callable

import pytest

from nearsight.common.errors import Unavailable
from nearsight.common.rpc import names
from nearsight.common.rpc.names import NameResolver
from support.waiting import LONG_S


def resolving(monkeypatch: pytest.MonkeyPatch, look_up: Callable[[str], list[tuple[object, ...]]]) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, _port: look_up(host))


def entry(family: int, address: str) -> tuple[object, ...]:
    return family, 1, 6, "", (address, 0)


def test_ipv4_addresses_are_preferred_to_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [entry(socket.AF_INET6, "::1"), entry(socket.AF_INET, "10.0.0.5")]
    resolving(monkeypatch, lambda host: both if host == "both" else both[:1])
    resolver = NameResolver()
    assert [resolver.look_up(host).result(LONG_S) for host in ("both", "six")] == ["10.0.0.5", "[::1]"]


def test_each_attempt_uses_the_next_address_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [(socket.AF_INET, "10.0.0.5"), (socket.AF_INET6, "::1"), (socket.AF_INET, "10.0.0.6")]
    entries = [entry(family, address) for family, address in addresses for _ in ("stream", "datagram")]
    resolving(monkeypatch, lambda _host: entries)
    found = [NameResolver().look_up("several", turn).result(LONG_S) for turn in range(4)]
    assert found == ["10.0.0.5", "10.0.0.6", "[::1]", "10.0.0.5"]


def test_an_unknown_name_is_unavailable_and_no_server_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str) -> list[tuple[object, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    resolving(monkeypatch, unknown)
    error = NameResolver().look_up("nowhere").exception(LONG_S)
    assert isinstance(error, Unavailable)
    assert error.message == "the name nowhere does not resolve (Name or service not known)"
    assert not error.reached


def test_a_slow_name_lookup_times_out_and_is_shared_by_all_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, answered = threading.Semaphore(0), threading.Event()

    def slow(host: str) -> list[tuple[object, ...]]:
        begun.release()
        assert answered.wait(LONG_S)
        return [entry(socket.AF_INET, "10.0.0.5")]

    monkeypatch.setattr(names, "LONGEST_S", 0.01)
    resolving(monkeypatch, slow)
    resolver = NameResolver()
    for lookup in [resolver.look_up("slow") for _ in range(3)]:
        with pytest.raises(Unavailable, match="no answer within"):
            lookup.result(LONG_S)
    assert begun.acquire(timeout=LONG_S)
    assert not begun.acquire(blocking=False), "all wait for one lookup"
    monkeypatch.setattr(names, "LONGEST_S", LONG_S)
    last = resolver.look_up("slow")
    answered.set()
    assert last.result(LONG_S) == "10.0.0.5"
