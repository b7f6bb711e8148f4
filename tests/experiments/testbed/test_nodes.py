"""Commands on this machine: what goes wrong is told as on any other node."""

import pytest

from nearsight.common.errors import SetupError, Unavailable
from nearsight.experiments.testbed.nodes import LocalShell


def test_a_command_that_does_not_end_is_no_wrong_setting() -> None:
    with pytest.raises(Unavailable, match=r"sleep on this machine did not end within 0 s; .*busy"):
        LocalShell().run(["/bin/sleep", "60"], timeout_s=0.1)


def test_a_command_that_fails_shows_its_last_words() -> None:
    with pytest.raises(SetupError, match="sh: no room"):
        LocalShell().run(["sh", "-c", "echo first >&2; echo no room >&2; exit 3"])


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(SetupError, match="no-such-program cannot be run"):
        LocalShell().run(["no-such-program"])
