"""Put ``tests/`` on the import path, so that tests share ``support``; keep their logs and leaks apart.

Hypothesis judges laws, not speed: on a busy machine an example may take its time.
"""

import gc
import inspect
import io
import multiprocessing.resource_tracker
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import pytest
import zmq
from hypothesis import HealthCheck, settings

from nearsight.common import logging as nearsight_logging
from nearsight.common.logging import configure_logging
from nearsight.common.rpc.sockets import process_context

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support.leaks import left_open, open_things
from support.needs import SYSTEM_NEEDS, require

settings.register_profile("nearsight", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nearsight")


_SHARES = pytest.StashKey[bool]()
"""Of modules: what a fixture of the module runs is shared by its tests."""


class _LoggerOfTests(nearsight_logging._Lines):
    """Drops the lines that a thread prints between two phases of a test, when nothing captures them."""

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(io.StringIO() if file is sys.__stderr__ else file)


def pytest_configure(config: pytest.Config) -> None:
    # What libraries start once per process at its first use; the test that is the first does not leak it.
    multiprocessing.resource_tracker.ensure_running()
    zmq.Frame(b"x", copy=False, copy_threshold=0)
    process_context().socket(zmq.PAIR).close()
    if config.getoption("capture") != "no":
        nearsight_logging._Lines = _LoggerOfTests  # type: ignore[misc]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Long modules first, or one worker would be left with one at the end; they are experiments.
    items.sort(key=lambda item: "experiments" not in item.path.parts)
    for item in items:
        needs = {need for mark in item.iter_markers("needs") for need in mark.args}
        if needs & SYSTEM_NEEDS and item.get_closest_marker("system") is None:
            raise pytest.UsageError(f"{item.nodeid} needs {', '.join(sorted(needs))}: mark it as system")
        if isinstance(item, pytest.Function) and _uses_what_the_module_runs(item):
            module = item.getparent(pytest.Module)
            assert module is not None
            module.stash[_SHARES] = True


def pytest_collection_finish() -> None:
    """Keep what was imported out of later collections of garbage: each would take 0.2 s of a test."""
    gc.collect()
    gc.freeze()


def _uses_what_the_module_runs(item: pytest.Function) -> bool:
    """Whether a fixture of the test has the scope of its module, and something to give back."""
    fixtures = [one for found in item._fixtureinfo.name2fixturedefs.values() for one in found]
    return any(
        one.scope == "module" and inspect.isgeneratorfunction(one.func) and not one.argname.startswith("_")
        for one in fixtures
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for need in mark.args:
            require(need)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes at the end of the test what is put on it, the latest first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(autouse=True)
def _logs_of_one_test() -> Iterator[None]:
    """What a daemon or command started by one test sets up must not reach the next."""
    configure_logging()
    yield
    configure_logging()


@pytest.fixture(autouse=True)
def _nothing_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves threads, descriptors or processes open.

    What a fixture of the module runs, such as a daemon, may connect anew in any of its tests; see the next
    fixture.
    """
    failed = request.session.testsfailed
    before = open_things()
    yield
    if request.node.getparent(pytest.Module).stash.get(_SHARES, False):
        return
    if request.session.testsfailed == failed:  # the traceback of a failure keeps things alive
        left = left_open(before)
        assert not left, "left open: " + ", ".join(left)


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open_by_the_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the last test of a module whose fixtures leave something open."""
    failed = request.session.testsfailed
    before = open_things()
    yield
    if request.node.stash.get(_SHARES, False) and request.session.testsfailed == failed:
        left = left_open(before)
        assert not left, "left open by the module: " + ", ".join(left)
