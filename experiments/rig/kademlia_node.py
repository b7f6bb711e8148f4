"""A node of the package ``kademlia``, the store that the dissertation compares with (6.8).

It uses the published package with its default settings. On request it stores fewer copies than the size of
its buckets. Its event loop runs in a separate thread, as in an application that uses the package.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nearsight.common.errors import AddressInUse, Unavailable

_START_TIMEOUT_S = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KademliaSettings:
    """Settings of one node; they can be created without the package installed."""

    k: int = 20
    """Size of a bucket. The package also stores each value at this number of nodes."""
    alpha: int = 3
    """Number of nodes that a lookup queries at once."""
    copies: int = 0
    """Number of nodes at which a value is stored; 0: k, as in the package. The dissertation uses k only as
    the size of a bucket, with which every node knows all others (6.8.1). It does not give the number of
    copies."""


class KademliaNode:
    """One node; its methods may be called from any thread but that of its event loop.

    Parameters
    ----------
    name : str
        The node id is the package's digest of this name.
    settings : KademliaSettings
        k, alpha and copies.
    """

    def __init__(self, name: str, settings: KademliaSettings) -> None:
        from kademlia.network import Server  # noqa: PLC0415  an optional library
        from kademlia.utils import digest  # noqa: PLC0415

        # The package logs a warning for every call without an answer. The rows of an experiment show these as
        # well.
        for logger in ("kademlia", "rpcudp"):
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        self._server = Server(ksize=settings.k, alpha=settings.alpha, node_id=digest(name))
        self._digest = digest
        self._copies = settings.copies or settings.k
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kademlia", daemon=True)

    def start(self, host: str, port: int) -> None:
        """Listen.

        Raises
        ------
        AddressInUse
            If the UDP port is taken.
        """
        self._thread.start()
        try:
            self.run(self._server.listen(port, interface=host), _START_TIMEOUT_S)
        except OSError as error:
            raise AddressInUse(f"UDP port {port} of {host} cannot be used: {error.strerror}") from error
        self._server.ksize = self._copies  # the routing table exists by now, with buckets of k

    def join(self, addresses: Sequence[tuple[str, int]], timeout_s: float) -> int:
        """Bootstrap with known nodes, as the package documents; returns the size of the routing table."""
        self.run(self._server.bootstrap(list(addresses)), timeout_s)
        return sum(len(bucket) for bucket in self._server.protocol.router.buckets)

    async def put(self, key: str, value: bytes) -> bool:
        """``Server.set``: True if at least one node stored the value."""
        return bool(await self._server.set(key, value))

    async def get(self, key: str) -> bytes | None:
        """``Server.get``."""
        value: bytes | None = await self._server.get(key)
        return value

    def holds(self, key: str) -> bool:
        """Whether ``get`` would answer from this node's own storage, without a message."""
        return self._server.storage.get(self._digest(key)) is not None

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the node's event loop and wait for its result.

        Raises
        ------
        Unavailable
            If it does not finish in time.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise Unavailable(f"the Kademlia node did not finish within {timeout_s:g} s") from error

    def stop(self) -> None:
        """Close the socket and end the thread."""

        async def close() -> None:
            self._server.stop()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        if not self._thread.is_alive():
            return
        self.run(close(), _START_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_TIMEOUT_S)
        self._loop.close()
