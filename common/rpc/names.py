"""Resolves host names on separate threads: the system may take many seconds for an unknown name.

ZeroMQ would resolve them on the thread that serves all its sockets, and would not report an unknown name.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from queue import SimpleQueue

from nearsight.common.background.futures import in_thread
from nearsight.common.errors import Unavailable

LONGEST_S = 2.0
"""A name whose lookup takes longer counts as unknown; the next attempt waits for the same lookup."""


class NameResolver:
    """Resolves names on its own threads, with one lookup at a time per name. Thread-safe.

    Parameters
    ----------
    wake : callable
        Called, from any thread, when `found` has a result.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._running: dict[str, Future[list[str]]] = {}
        self._found: SimpleQueue[tuple[int, str | Unavailable]] = SimpleQueue()

    def look_up(self, ticket: int, host: str, turn: int = 0) -> None:
        """Begin a lookup; `found` returns the result with this ticket, after `LONGEST_S` at the latest.

        If a host has several addresses, successive turns take successive addresses: IPv4 first, then IPv6,
        then again from the start.
        """
        with self._lock:
            lookup = self._running.get(host)
            if lookup is None:
                lookup = self._running[host] = in_thread(partial(_addresses_of, host), "rpc-name")
                lookup.add_done_callback(lambda _: self._running.pop(host))
        in_thread(partial(self._hand_over, ticket, host, lookup, turn), "rpc-name-wait")

    def found(self) -> list[tuple[int, str | Unavailable]]:
        """The completed lookups: ticket, and either the address for an endpoint or the error."""
        results = []
        while not self._found.empty():  # only the caller takes results
            results.append(self._found.get())
        return results

    def _hand_over(self, ticket: int, host: str, lookup: Future[list[str]], turn: int) -> None:
        wait([lookup], LONGEST_S)
        result: str | Unavailable
        if not lookup.done():
            result = _unknown(host, f"no answer within {LONGEST_S:g} s")
        elif isinstance(error := lookup.exception(), Unavailable):
            result = error
        else:
            addresses = lookup.result()
            result = addresses[turn % len(addresses)]
        self._found.put((ticket, result))
        self._wake()


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
