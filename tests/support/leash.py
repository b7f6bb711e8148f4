"""Processes that always end with the process of the tests."""

import sys

from nearsight.experiments.rig import agent


def leashed(*arguments: str) -> list[str]:
    """The command ``python ARGUMENTS`` of such a process."""
    return agent.launcher_command([sys.executable, *arguments], leash=True)
