"""Commands of iproute2, and the end of network namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from nearsight.common.errors import SetupError

NAMESPACES = Path("/run/netns")
"""Has a file for each, of its name."""
_NOT_ALLOWED = "run as root on Linux, or without them: nodes of kind 'process', loopback"
_LEFT_OVER = (
    "a command that was killed left them: `ip netns list` names them, `ip netns delete NAME` removes one"
)


def ip(commands: Sequence[str], *, inside: str = "") -> None:
    """Run commands of ``ip`` in a namespace, or here; see `batch`."""
    batch("ip", commands, inside)


def batch(program: str, commands: Sequence[str], inside: str) -> None:
    """Run the commands of ``ip`` or ``tc`` in one process; the first that fails ends it.

    Raises
    ------
    SetupError
        If one fails, or there is no such program.
    """
    where = ["-netns", inside] if inside else []
    try:
        done = subprocess.run(
            [program, *where, "-batch", "-"],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise SetupError(
            f"network namespaces need the command {program!r}", advice="on Debian: apt-get install iproute2"
        ) from error
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()[:30])
        raise SetupError(
            f"network namespaces cannot be made: {reason}",
            advice=_LEFT_OVER if "File exists" in reason else _NOT_ALLOWED,
        )


def delete_namespaces(names: Iterable[str]) -> None:
    """Delete namespaces and whatever runs in them; those that are gone do not matter."""
    for name in names:
        if not (NAMESPACES / name).exists():
            continue
        inside = subprocess.run(
            ["ip", "netns", "pids", name], capture_output=True, text=True, check=False
        ).stdout.split()
        for pid in inside:
            if int(pid) != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
