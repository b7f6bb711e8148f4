"""The supervisor of all processes of experiments: starts, monitors and stops them on every machine.

`processes` calls it as a module. On the nodes of a testbed it is a program that is copied to them over SSH:
``python agent.py COMMAND`` reads an order (the parameters of the command) as JSON from its standard input and
prints the answer as JSON. Each daemon is recorded in ``FOLDER/NAME.run`` before its program starts, so that
any later call finds it, also after a crash. A process is identified by its id and its start time, so that a
later process with the same id is never stopped instead. Daemons continue to run after the process that
started them has ended, unless the order contains ``leash``.

The module imports nothing of nearsight, which may not be installed on the node yet.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    Order = dict[str, Any]
    Answer = dict[str, Any]

POLL_S = 0.05
LOG_LINES = 3
MARK = "nearsight-testbed"
"""Name of the file that marks a folder as safe to delete."""
MOUNTS = "/proc/mounts"
REMOVAL_TIMEOUT_S = 60.0
"""Timeout of the removal of a control group: processes that wait for a busy core end slowly."""
_PR_SET_PDEATHSIG = 1
_CHILDREN: dict[int, subprocess.Popen[str]] = {}
"""Running processes that this very process started. Only their parent can read their exit status."""


class AgentError(Exception):
    """A problem on this node that the user must solve; reported as one line."""


def check(order: Order) -> Answer:
    """Properties of this node, and what it lacks to run nearsight, with ``environment`` in one of its own."""
    needed = ("venv", "ensurepip") if order.get("environment") else ()
    modules = [module for module in needed if importlib.util.find_spec(module) is None]
    missing = [f"Python's module {module} (Debian: apt-get install python3-venv)" for module in modules]
    parent = order["folder"]
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    free_mb = shutil.disk_usage(parent).free >> 20
    if free_mb < order.get("disk_mb", 0):
        missing.append(f"{order['disk_mb']} MB of disk at {parent} ({free_mb} MB are free)")
    if not os.access(parent, os.W_OK):
        missing.append(f"write permission for {parent}")
    return {
        "missing": missing,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cgroup": cgroup_version(),
    }


def start(order: Order) -> Answer:
    """Start a daemon that is independent of this process; returns when its program runs."""
    return {"pid": launch(order).pid}


def launch(order: Order) -> subprocess.Popen[str]:
    """Start a daemon; returns when its program runs. With ``capture``, its input and output are pipes."""
    folder, name = order["folder"], order["name"]
    os.makedirs(folder, exist_ok=True)
    path = file_path(folder, name, ".run")
    previous = read_json(path)
    if alive(previous):
        raise AgentError(f"{name} is already running, as process {previous['pid']}")
    for ending in (".json", ".in"):
        remove(file_path(folder, name, ending))
    groups = limit(order["limits"]) if order.get("limits") else []
    kept = {key: value for key, value in os.environ.items() if not key.upper().startswith("NEARSIGHT_")}
    kept.update(order.get("environment", {}))
    reading, writing = os.pipe()
    with open(reading) as answers:
        with contextlib.ExitStack() as opened:
            opened.callback(os.close, writing)
            log = opened.enter_context(open(file_path(folder, name, ".log"), "w"))
            given = subprocess.DEVNULL
            if order.get("input"):
                os.mkfifo(file_path(folder, name, ".in"), 0o600)
                given = os.open(file_path(folder, name, ".in"), os.O_RDWR)
                opened.callback(os.close, given)
            captured = order.get("capture")
            process = subprocess.Popen(
                launcher_command(order["command"], order.get("leash"), path, groups, writing),
                stdin=subprocess.PIPE if captured else given,
                stdout=subprocess.PIPE if captured else log,
                stderr=log,
                text=True,
                env=kept,
                start_new_session=True,
                pass_fds=[writing],
            )
        try:
            failure = answers.read()
        except BaseException:  # Ctrl-C: the caller would get no handle of the process
            process.kill()
            raise
    if failure:
        process.communicate()
        remove(path)
        raise AgentError(f"{name} cannot be started: {failure}")
    _CHILDREN[process.pid] = process
    return process


def launcher_command(
    command: list[str], leash: bool | None, path: str = "", groups: Sequence[str] = (), failures: int = 0
) -> list[str]:
    """The command line that runs `become_daemon` first, which then replaces itself with ``command``.

    Python code between fork and exec (``preexec_fn``) would be unsafe, as the caller may have threads.
    """
    order = [command, os.getpid() if leash else 0, path, list(groups), failures]
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), "become-daemon", json.dumps(order)]


def become_daemon(command: list[str], parent_pid: int, path: str, groups: list[str], failures: int) -> None:
    """Become a daemon: write the record, enter the control groups, and execute the program; never returns.

    Parameters
    ----------
    command : list of str
        The program and its arguments.
    parent_pid : int
        Process whose end, also by SIGKILL, makes the kernel kill this one. Ignored where the kernel does not
        support that. 0: the daemon continues to run after the end of the process that started it.
    path : str
        File for the record; empty: none.
    groups : list of str
        Folders of the control groups that limit it.
    failures : int
        Pipe for error messages, which is closed when the program starts; 0: errors go to standard error.
    """
    try:
        if parent_pid and sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != parent_pid:
                sys.exit("the parent process has ended")
        if path:
            write_json(path, {"pid": os.getpid(), "started": started(os.getpid())})
        for group in groups:
            write(group, "cgroup.procs", os.getpid())
        if failures:
            os.set_inheritable(failures, False)
        os.execvp(command[0], command)
    except Exception as error:
        if not failures:
            raise
        os.write(failures, f"{type(error).__name__}: {error}".encode()[:400])
        sys.exit(1)


def state(order: Order) -> Answer:
    """State of every daemon that was started here: whether it runs, its announcement, the end of its log."""
    folder = order["folder"]
    return {name: state_of(folder, name) for name in daemon_names(folder)}


def state_of(folder: str, name: str) -> Answer:
    """State of one daemon."""
    record = read_json(file_path(folder, name, ".run")) or {}
    running = alive(record)
    cpu_s, memory_bytes = usage(record["pid"]) if running else (0.0, 0)
    return {
        "running": running,
        "pid": record.get("pid", 0),
        "announced": read_json(file_path(folder, name, ".json")),
        "log": last_lines(file_path(folder, name, ".log")),
        "cpu_s": cpu_s,
        "memory_bytes": memory_bytes,
    }


def wait(order: Order) -> Answer:
    """Wait until a daemon announced itself or ended (only ended if ``until`` is "ended"), or the timeout."""
    deadline_s = time.monotonic() + order["timeout_s"]
    while True:
        state = state_of(order["folder"], order["name"])
        announced = state["announced"] and order.get("until") != "ended"
        if announced or not state["running"] or time.monotonic() > deadline_s:
            return state
        time.sleep(POLL_S)


def stop(order: Order) -> Answer:
    """Stop the named daemons, or all: first with SIGTERM, then, children included, with SIGKILL."""
    folder, wanted = order["folder"], order.get("names")
    wanted = daemon_names(folder) if wanted is None else wanted
    records = {name: read_json(file_path(folder, name, ".run")) for name in wanted}
    running = [record for record in records.values() if alive(record)]
    for record in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record["pid"], signal.SIGTERM)
    deadline_s = time.monotonic() + order.get("grace_s", 5.0)
    while time.monotonic() < deadline_s and any(alive(record) for record in running):
        time.sleep(POLL_S)
    killed = [record for record in running if alive(record)]
    for record in running:
        # Also if the daemon itself has ended: its children are in its process group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(record["pid"], signal.SIGKILL)
    while any(alive(record) for record in killed):
        time.sleep(POLL_S)
    for name in records:
        for ending in (".run", ".in"):
            remove(file_path(folder, name, ending))
    return {"stopped": len(running), "killed": len(killed)}


def write_line(order: Order) -> Answer:
    """Write a line to the standard input of a daemon that was started with ``input``."""
    folder, name = order["folder"], order["name"]
    if not alive(read_json(file_path(folder, name, ".run"))):
        raise AgentError(f"{name} is not running: {last_lines(file_path(folder, name, '.log'))}")
    with open(file_path(folder, name, ".in"), "w") as pipe:
        pipe.write(order["line"] + "\n")
    return {}


def clear(order: Order) -> Answer:
    """Remove the control groups of a node, and its folder if requested. Its daemons are stopped before."""
    for group in groups_of(order.get("group")):
        remove_group(group)
    folder = order["folder"]
    if order.get("folder_too") and os.path.exists(os.path.join(folder, MARK)):
        shutil.rmtree(folder)
    return {}


# ---- limits of CPU and memory


def cgroup_points() -> list[str]:
    """Folders in which control groups are created: for v1 those of CPU and memory, for v2 one, or none."""
    found: dict[str, str] = {}
    for _, point, kind, options, *_ in map(str.split, read_text(MOUNTS).splitlines()):
        if kind == "cgroup":
            for controller in {"cpu", "memory"} & set(options.split(",")):
                found[controller] = point
        elif kind == "cgroup2" and "cpu" not in found:
            controllers = read_text(os.path.join(point, "cgroup.controllers")).split()
            if {"cpu", "memory"} <= set(controllers):
                found["both"] = point
    if {"cpu", "memory"} <= set(found):
        return [found["cpu"], found["memory"]]
    return [found["both"]] if "both" in found else []


def cgroup_version() -> int:
    """1 or 2 if this user may limit processes here, else 0."""
    points = cgroup_points()
    return 3 - len(points) if points and all(os.access(point, os.W_OK) for point in points) else 0


def groups_of(name: str | None) -> list[str]:
    """The folders of the control group with this name; they need not exist."""
    return [os.path.join(point, name) for point in cgroup_points()] if name else []


def limit(limits: Order) -> list[str]:
    """Create the node's control group with its limits; returns the folders that a process must enter."""
    version = cgroup_version()
    if not version:
        raise AgentError("this node cannot limit CPU and memory: cgroups need root on Linux")
    groups = groups_of(limits["group"])
    quota_us, period_us = limits["cpu_us"]
    memory = limits["memory_bytes"]
    for group in groups:
        os.makedirs(group, exist_ok=True)
    if version == 1:
        write(groups[0], "cpu.cfs_period_us", period_us)
        write(groups[0], "cpu.cfs_quota_us", quota_us)
    else:
        with contextlib.suppress(OSError):  # already enabled wherever systemd runs
            write(os.path.dirname(groups[0]), "cgroup.subtree_control", "+cpu +memory")
        write(groups[0], "cpu.max", f"{'max' if quota_us < 0 else quota_us} {period_us}")
    if memory:
        write(groups[-1], "memory.limit_in_bytes" if version == 1 else "memory.max", memory)
    return groups


def remove_group(group: str) -> None:
    """Kill the remaining processes of a control group and remove it."""
    deadline_s = time.monotonic() + REMOVAL_TIMEOUT_S
    while os.path.isdir(group):
        for pid in read_text(os.path.join(group, "cgroup.procs")).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.rmdir(group)
        except OSError as error:
            if time.monotonic() > deadline_s:
                raise AgentError(f"cannot remove {group}: {error.strerror}")  # noqa: B904
            time.sleep(POLL_S)


def write(folder: str, name: str, value: object) -> None:
    """Write one setting of a control group."""
    with open(os.path.join(folder, name), "w") as file:
        file.write(str(value))


# ---- processes and files


def daemon_names(folder: str) -> list[str]:
    """Daemons that were started here and not stopped."""
    try:
        return sorted(entry[: -len(".run")] for entry in os.listdir(folder) if entry.endswith(".run"))
    except FileNotFoundError:
        return []


def stat_fields(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` after the process name; empty if there is no such process."""
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()


def started(pid: int) -> int | None:
    """Start time of a process in kernel ticks; None if there is no such process or it has ended."""
    fields = stat_fields(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])


def alive(record: Order | None) -> bool:
    """Whether the process of a record still runs; a later process with the same id does not count."""
    if not record:
        return False
    child = _CHILDREN.get(record["pid"])
    if child is not None and child.poll() is not None:
        _CHILDREN.pop(record["pid"], None)
        child = None
    since = started(record["pid"])
    if child is None:
        return since is not None and since == record["started"]
    # The start time is unknown on other systems than Linux, and while a process ends: its first thread has
    # then ended, but others have not, and its parent cannot read the exit status yet.
    return since is None or since == record["started"]


def usage(pid: int) -> tuple[float, int]:
    """CPU seconds and resident bytes of a process."""
    fields = stat_fields(pid)
    if not fields:
        return 0.0, 0
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(map(int, fields[11:15])) / ticks, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")


def file_path(folder: str, name: str, ending: str) -> str:
    """Path of a file of a daemon."""
    return os.path.join(folder, name + ending)


def remove(path: str) -> None:
    """Remove a file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def last_lines(path: str) -> str:
    """The end of a log on one line; only the last line if that is an error message."""
    try:
        with open(path, "rb") as log:
            log.seek(max(0, os.path.getsize(path) - 4096))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    last = [line.strip() for line in lines[-LOG_LINES:] if line.strip()]
    if last and last[-1].startswith("error:"):
        last = last[-1:]
    return " | ".join(last)


def read_text(path: str) -> str:
    """Content of a file; empty if it does not exist or cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def read_json(path: str) -> Any:
    """Content of a JSON file; None if it does not exist or is malformed."""
    try:
        return json.loads(read_text(path))
    except ValueError:
        return None


def write_json(path: str, value: object) -> None:
    """Write a JSON file atomically."""
    partial = f"{path}.{os.getpid()}"
    with open(partial, "w") as file:
        json.dump(value, file)
    os.replace(partial, path)


COMMANDS = {one.__name__: one for one in (check, start, state, wait, stop, write_line, clear)}


def main() -> None:
    """Execute one command, or become a daemon."""
    if sys.argv[1] == "become-daemon":
        become_daemon(*json.loads(sys.argv[2]))
    order = json.load(sys.stdin)
    order["folder"] = os.path.abspath(order["folder"])
    try:
        answer: Answer = {"answer": COMMANDS[sys.argv[1]](order)}
    except (AgentError, OSError) as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
