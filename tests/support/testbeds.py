"""Testbeds of tests, which are taken down in every case."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from nearsight.common.errors import SetupError, Unavailable
from nearsight.experiments.rig.agent import cgroup_points, groups_of, remove_group
from nearsight.experiments.testbed.node_network import remove_network
from nearsight.experiments.testbed.state import STATE_FILE, load_state
from nearsight.experiments.testbed.testbed import take_down

CROWD = """
[nodes.server]
kind = "{kind}"
[nodes.box]
kind = "{kind}"
[nodes.phone]
kind = "{kind}"
count = 2
[cloud]
node = "server"
[edges.main]
node = "box"
[devices.visitors]
node = "phone"
[[links]]
from = "box"
to = "server"
rtt_ms = 10
up_mbps = 20
"""


@contextmanager
def testbed_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a testbed, which is taken down afterwards, as are those of killed test runs."""
    for parent in tmp_path.parents:
        if parent.name.startswith("pytest-of-"):
            take_down_leftovers(parent)
    folder = tmp_path / "lab.testbed"
    try:
        yield folder
    finally:
        take_down(folder)


testbed_folder.__test__ = False  # type: ignore[attr-defined]


def take_down_leftovers(folder: Path) -> None:
    """Take down testbeds in folders of pytest whose process has ended without removing its lock."""
    for lock in folder.glob("pytest-*/.lock"):
        if _was_killed(lock):
            for state in lock.parent.rglob(STATE_FILE):
                # Its SSH server has ended, or another test takes it down.
                with suppress(Unavailable, SetupError):
                    take_down(state.parent)


def _was_killed(lock: Path) -> bool:
    try:
        return not psutil.pid_exists(int(lock.read_text()))
    except (FileNotFoundError, ValueError):  # the lock is being removed or created
        return False


def write_inventory(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "lab.toml"
    path.write_text(text)
    return path


_ID = re.compile(r"test(?P<pid>\d+)(?=-|$)")


def own_id() -> str:
    """An id for names of namespaces and groups, unique to this process.

    Namespaces and groups of killed test runs are removed, with the processes in them.
    """
    found = {match["pid"]: match[0] for name in left_of("test") if (match := _ID.search(name))}
    for pid, old in found.items():
        if not psutil.pid_exists(int(pid)):
            remove_network(old)
            for group in groups_of(group_of(old)):
                remove_group(group)
    return f"test{os.getpid()}"


def group_of(test_id: str) -> str:
    """Name of a control group of limits."""
    return f"nearsight-{test_id}"


def left_of(testbed_id: str) -> list[str]:
    """Namespaces and groups whose name contains a testbed's id."""
    places = [Path("/run/netns"), *map(Path, cgroup_points())]
    found = [path.name for place in places if place.is_dir() for path in place.iterdir()]
    return [name for name in found if testbed_id in name]


def processes_with(word: str) -> list[str]:
    """Command lines of running processes that contain a word."""
    found = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in found if word in line]


def id_of(folder: Path) -> str:
    state = load_state(folder)
    assert state is not None
    return state.testbed_id
