"""Names of hosts: looked up in the background, one lookup per name at a time, with a timeout."""

import socket
import threading
from collections.abc import Callable

import pytest

from nearsight.common.errors import Unavailable
from nearsight.common.rpc import names
from nearsight.common.rpc.names import NameResolver
from support.waiting import wait_until


def resolving(monkeypatch: pytest.MonkeyPatch, look_up: Callable[[str], list[tuple[object, ...]]]) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, _port: look_up(host))


def entry(family: int, address: str) -> tuple[object, ...]:
    return family, 1, 6, "", (address, 0)


def results(resolver: NameResolver, count: int) -> dict[int, str | Unavailable]:
    found: dict[int, str | Unavailable] = {}

    def complete() -> bool:
        found.update(resolver.found())
        return len(found) == count

    wait_until(complete, what="results")
    return found


def test_ipv4_addresses_are_preferred_to_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [entry(socket.AF_INET6, "::1"), entry(socket.AF_INET, "10.0.0.5")]
    resolving(monkeypatch, lambda host: both if host == "both" else both[:1])
    woken = threading.Event()
    resolver = NameResolver(woken.set)
    resolver.look_up(1, "both")
    resolver.look_up(2, "six")
    assert results(resolver, 2) == {1: "10.0.0.5", 2: "[::1]"}
    assert woken.is_set()


def test_each_attempt_uses_the_next_address_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [(socket.AF_INET, "10.0.0.5"), (socket.AF_INET6, "::1"), (socket.AF_INET, "10.0.0.6")]
    entries = [entry(family, address) for family, address in addresses for _ in ("stream", "datagram")]
    resolving(monkeypatch, lambda _host: entries)
    resolver = NameResolver(lambda: None)
    for turn in range(4):
        resolver.look_up(turn, "several", turn)
    assert results(resolver, 4) == {0: "10.0.0.5", 1: "10.0.0.6", 2: "[::1]", 3: "10.0.0.5"}


def test_an_unknown_name_is_unavailable_and_no_server_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(host: str) -> list[tuple[object, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    resolving(monkeypatch, unknown)
    resolver = NameResolver(lambda: None)
    resolver.look_up(1, "nowhere")
    error = results(resolver, 1)[1]
    assert isinstance(error, Unavailable)
    assert error.message == "the name nowhere does not resolve (Name or service not known)"
    assert not error.reached


def test_a_slow_name_lookup_times_out_and_is_shared_by_all_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, answered = threading.Semaphore(0), threading.Event()

    def slow(host: str) -> list[tuple[object, ...]]:
        begun.release()
        assert answered.wait(60)
        return [entry(socket.AF_INET, "10.0.0.5")]

    monkeypatch.setattr(names, "LONGEST_S", 0.01)
    resolving(monkeypatch, slow)
    resolver = NameResolver(lambda: None)
    for ticket in (1, 2, 3):
        resolver.look_up(ticket, "slow")
    assert all("no answer within" in str(error) for error in results(resolver, 3).values())
    assert begun.acquire(timeout=60)
    assert not begun.acquire(blocking=False), "all wait for one lookup"
    monkeypatch.setattr(names, "LONGEST_S", 60.0)
    resolver.look_up(4, "slow")
    answered.set()
    assert results(resolver, 1) == {4: "10.0.0.5"}
