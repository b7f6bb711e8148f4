"""Clients of a measured daemon in processes: each sends "ready", and ends when it receives None."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, takewhile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from nearsight.common.errors import InternalError, NearsightError
from nearsight.common.rpc.client import Channel, Stub
from nearsight.common.rpc.security import ClientSecurity, read_public_key, read_secret_key
from nearsight.experiments.bench import attacks
from nearsight.experiments.bench.attacks import HONEST, TIMEOUT_S, Attack, Victim
from nearsight.protos import recognition_pb2

CLIENTS, STEADY, PAUSE_S = 6, 4, 0.2
"""Number of honest clients; those that stay connected; pause between an answer and the next photo."""

_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class PhotoResult:
    """One photo of an honest client."""

    begun_s: float
    ms: float
    """Latency; the timeout if there was no answer."""
    outcome: str
    """Empty if the photo was answered, otherwise the error code."""
    newcomer: bool
    """Whether the client connected for this photo only."""

    @property
    def ended_s(self) -> float:
        """Time of the answer; without an answer, the latest possible end."""
        return self.begun_s + self.ms / 1e3


@contextmanager
def child(target: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Start a process that runs a function with a pipe to this process; wait until it is ready."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        answer_of(ours, 60.0)
        yield ours
    finally:
        with suppress(OSError):  # the process has ended
            ours.send(None)
        process.join(2 * TIMEOUT_S)
        if process.is_alive():
            process.kill()
            process.join()
        ours.close()


@contextmanager
def repeated(period_s: float, work: Callable[[], None]) -> Iterator[None]:
    """Call a function periodically, in a thread, while the block runs."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(period_s):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def use_keys(socket: zmq.Socket[bytes], keys: ClientSecurity | None) -> None:
    """Let a plain ZeroMQ socket connect with the keys of a client, if there are keys."""
    if keys is not None:
        own = read_secret_key(keys.secret_key_file)
        socket.curve_publickey, socket.curve_secretkey = own.public.encode(), own.secret.encode()
        socket.curve_serverkey = read_public_key(keys.server_public_key).encode()


def answer_of(child: Connection, timeout_s: float) -> Any:
    """Receive the next object from a child process.

    Raises
    ------
    InternalError
        If the process has ended, or sends nothing within the timeout.
    """
    try:
        if child.poll(timeout_s):
            return child.recv()
    except (EOFError, ConnectionError):
        raise InternalError(
            "a client of the benchmark ended with an error; see its traceback above"
        ) from None
    raise InternalError(f"a client of the benchmark sent nothing for {timeout_s:.0f} s")


def run_attacker(parent: Connection, attacker: Attack, victim: Victim) -> None:
    """Run a hostile client."""
    os.nice(3)  # it represents another machine, which does not use the daemon's cores
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    parent.send("ready")
    if parent.recv() is not None:
        parent.send(attacker(victim))


def run_honest_clients(parent: Connection, victim: Victim) -> None:
    """Run the honest clients: some stay connected, others connect anew for every photo."""
    photos = [Path(name).read_bytes() for name in victim.photos]
    over, told = threading.Event(), threading.Lock()
    rng = np.random.default_rng(1)
    pauses = rng.uniform(0.5, 1.5, 997) * PAUSE_S

    def ask(channel: Channel, number: int, *, newcomer: bool) -> None:
        begun_s, outcome = time.monotonic(), ""
        try:
            stub = Stub(channel, recognition_pb2.DESCRIPTOR.services_by_name["Recognition"])
            attacks.ask(stub, victim, photos[number % len(photos)]).result()
        except NearsightError as error:
            outcome = error.code.name
        ms = (time.monotonic() - begun_s) * 1e3 if not outcome else TIMEOUT_S * 1e3
        with told, suppress(OSError):
            parent.send(PhotoResult(begun_s, ms, outcome, newcomer))
        over.wait(pauses[number % len(pauses)])

    def client(first: int) -> None:
        numbers = takewhile(lambda _: not over.is_set(), count(first, CLIENTS))
        if first < STEADY:
            with victim.channel(HONEST) as channel:
                for number in numbers:
                    ask(channel, number, newcomer=False)
        else:
            for number in numbers:
                with victim.channel(HONEST) as channel:
                    ask(channel, number, newcomer=True)

    parent.send("ready")
    try:
        for number in range(CLIENTS):
            threading.Thread(target=client, args=(number,)).start()
        with suppress(EOFError):  # the parent was killed
            parent.recv()
    finally:
        over.set()  # the threads would ask for ever
