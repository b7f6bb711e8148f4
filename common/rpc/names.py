"""Resolves host names on separate threads: the system may take many seconds for an unknown name.

ZeroMQ would resolve them on the thread that serves all its sockets, and would not report an unknown name.
"""

from __future__ import annotations

import socket
import threading
from concurrent.futures import Future
from functools import partial

from nearsight.common.background.futures import in_thread
from nearsight.common.errors import Unavailable

LONGEST_S = 2.0
"""A name whose lookup takes longer counts as unknown; the next attempt waits for the same lookup."""


class NameResolver:
    """Resolves names on its own threads, with one lookup at a time per name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, Future[list[str]]] = {}

    def look_up(self, host: str, turn: int = 0) -> Future[str]:
        """The address of a host for an endpoint, or `Unavailable`; after `LONGEST_S` at the latest.

        If a host has several addresses, successive turns take successive addresses: IPv4 first, then IPv6,
        then again from the start.
        """
        with self._lock:
            lookup = self._running.get(host)
            if lookup is None:
                lookup = self._running[host] = in_thread(partial(_addresses_of, host), "rpc-name")
                lookup.add_done_callback(lambda _: self._running.pop(host))
        return in_thread(partial(_one_address, host, lookup, turn), "rpc-name-wait")


def _one_address(host: str, lookup: Future[list[str]], turn: int) -> str:
    try:
        addresses = lookup.result(LONGEST_S)
    except TimeoutError as error:
        raise _unknown(host, f"no answer within {LONGEST_S:g} s") from error
    return addresses[turn % len(addresses)]


def _addresses_of(host: str) -> list[str]:
    try:
        entries = [(family, where[0]) for family, *_, where in socket.getaddrinfo(host, None)]
    except (OSError, UnicodeError) as error:
        raise _unknown(host, getattr(error, "strerror", None) or str(error)) from error
    old = [str(address) for family, address in entries if family == socket.AF_INET]
    new = [f"[{address}]" for family, address in entries if family == socket.AF_INET6]
    return list(dict.fromkeys(old + new))  # each address is listed once per socket type


def _unknown(host: str, reason: str) -> Unavailable:
    error = Unavailable(
        f"the name {host} does not resolve ({reason})",
        advice="is it spelled right, and does this machine reach its DNS server?",
    )
    error.reached = False
    return error
