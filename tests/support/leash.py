"""Processes that always end with the process of the tests."""

import sys

import psutil

from nearsight.experiments.rig import agent


def leashed(*arguments: str) -> list[str]:
    """The command ``python ARGUMENTS`` of such a process."""
    return agent.launcher_command([sys.executable, *arguments], leash=True)


def ended(pid: int) -> bool:
    """Whether a process has ended; also if its parent has not read its exit status yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
