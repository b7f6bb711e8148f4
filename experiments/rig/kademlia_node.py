"""A node of the package ``kademlia``, the store that the dissertation compares with (6.8).

It is the package as published, with its own defaults; if asked to it stores fewer copies than its buckets are
large. Its event loop has a thread of its own, as an application of it would have.
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
    """Of one node; they can be named without the package."""

    k: int = 20
    """Size of a bucket; for the package that is also to how many nodes a value is stored."""
    alpha: int = 3
    """How many nodes a lookup asks at once."""
    copies: int = 0
    """To how many nodes a value is stored, if not k: the dissertation calls k the size of a bucket, by which
    every node knows all others (6.8.1), and says nothing of copies. 0: k, as the package has it."""


class KademliaNode:
    """One node; its methods may be called from any thread but that of its loop.

    Parameters
    ----------
    name : str
        Its node id is the package's digest of this.
    settings : KademliaSettings
        k, alpha and copies.
    """

    def __init__(self, name: str, settings: KademliaSettings) -> None:
        from kademlia.network import Server  # noqa: PLC0415  an optional library
        from kademlia.utils import digest  # noqa: PLC0415

        # It warns of every call that is not answered, which the rows of an experiment say as well.
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
        self._server.ksize = self._copies  # its routing table is made by now, with buckets of k

    def join(self, addresses: Sequence[tuple[str, int]], timeout_s: float) -> int:
        """Bootstrap with known nodes, as the package documents; how many nodes it knows then."""
        self.run(self._server.bootstrap(list(addresses)), timeout_s)
        return sum(len(bucket) for bucket in self._server.protocol.router.buckets)

    async def put(self, key: str, value: bytes) -> bool:
        """``Server.set``: True if at least one node took it."""
        return bool(await self._server.set(key, value))

    async def get(self, key: str) -> bytes | None:
        """``Server.get``."""
        value: bytes | None = await self._server.get(key)
        return value

    def holds(self, key: str) -> bool:
        """Whether ``get`` would answer from this node's own storage, without a message."""
        return self._server.storage.get(self._digest(key)) is not None

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run something on the node's loop and wait for it.

        Raises
        ------
        Unavailable
            If it does not end in time.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise Unavailable(f"the Kademlia node did not finish within {timeout_s:g} s") from error

    def stop(self) -> None:
        """Close its socket and end its thread."""

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
