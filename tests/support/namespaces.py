"""Runs threads of a test on another host of a `NamespaceNetwork`; their sockets belong to that host."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from nearsight.experiments.links.namespaces import NAMESPACES, Namespace

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET

T = TypeVar("T")


@contextlib.contextmanager
def entered(node: Namespace) -> Iterator[None]:
    """Move this thread, and all threads that it starts, to that host for a block."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
    there = os.open(NAMESPACES / node.name, os.O_RDONLY)
    try:
        _enter(libc, there)
        try:
            yield
        finally:
            _enter(libc, home)
    finally:
        os.close(home)
        os.close(there)


def on(node: Namespace, function: Callable[[], T]) -> T:
    """Call the function on that host."""
    with entered(node):
        return function()


def _enter(libc: ctypes.CDLL, descriptor: int) -> None:
    if libc.setns(descriptor, _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")
