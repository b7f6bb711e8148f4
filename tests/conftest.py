"""Put ``tests/`` on the import path for ``support``; reset logs and detect leaks after each test.

Hypothesis has no deadline per example, because a busy machine may be slow.
"""

import gc
import inspect
import io
import multiprocessing.resource_tracker
import signal
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
from nearsight.common.recognition.object_recognizer import pin_threads
from nearsight.common.rpc.sockets import process_context

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support.leaks import left_open, open_things
from support.needs import SYSTEM_NEEDS, require

settings.register_profile(
    "nearsight", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("nearsight"), max_examples=100)  # of .ci/run
settings.load_profile("nearsight")

_ROOT = Path(__file__).resolve().parent
_SHARES = pytest.StashKey[bool]()
"""Of modules: a fixture of the module runs something for several tests."""


class _LoggerOfTests(nearsight_logging._Lines):
    """Drops lines that a thread logs between two phases of a test, when output is not captured."""

    def __init__(self, file: TextIO | None = None) -> None:
        super().__init__(io.StringIO() if file is sys.__stderr__ else file)


def pytest_configure(config: pytest.Config) -> None:
    # Children inherit ignored signals, and tests send them these.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell script started the tests with "&"
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup started them
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    pin_threads()  # as in a daemon; otherwise the threads of all workers would compete for the cores
    # Libraries start these once per process, at their first use; no test is blamed for it.
    multiprocessing.resource_tracker.ensure_running()
    zmq.Frame(b"x", copy=False, copy_threshold=0)
    process_context().socket(zmq.PAIR).close()
    if config.getoption("capture") != "no":
        nearsight_logging._Lines = _LoggerOfTests  # type: ignore[misc]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Experiments and tests of the whole package take longest; they run first, so that all workers finish at
    # about the same time.
    items.sort(key=lambda item: item.path.parent != _ROOT and "experiments" not in item.path.parts)
    for item in items:
        needs = {need for mark in item.iter_markers("needs") for need in mark.args}
        if needs & SYSTEM_NEEDS and item.get_closest_marker("system") is None:
            raise pytest.UsageError(f"{item.nodeid} needs {', '.join(sorted(needs))}: mark it as system")
        if isinstance(item, pytest.Function) and _has_module_fixture(item):
            module = item.getparent(pytest.Module)
            assert module is not None
            module.stash[_SHARES] = True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import without garbage collections, and exclude the imported objects from later ones.

    Hardly anything of it becomes garbage, and there is so much of it that collections would take 1 s.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _has_module_fixture(item: pytest.Function) -> bool:
    """Whether the test uses a fixture of module scope that releases something afterwards."""
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
    """Closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(autouse=True)
def _logs_of_one_test() -> Iterator[None]:
    """Undo the logging configuration of daemons and commands."""
    configure_logging()
    yield
    configure_logging()


@pytest.fixture(autouse=True)
def _nothing_left_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves threads, descriptors or processes open.

    A daemon of a module fixture may open new connections in any test; the next fixture checks such modules.
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
