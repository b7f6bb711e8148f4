"""A full disk and a missing right are told from bugs."""

import errno

import pytest

from nearsight.common.machine_errors import refusal_of_machine


def test_a_missing_right_names_the_file_and_the_next_step() -> None:
    found = refusal_of_machine(PermissionError(errno.EACCES, "denied", "/lab/rows.csv"))
    assert str(found) == "Permission denied: /lab/rows.csv; give the right to it, or name another place"


def test_a_full_disk_says_so_without_a_file() -> None:
    found = refusal_of_machine(OSError(errno.ENOSPC, "full"))
    assert str(found).startswith("No space left on device; make room")


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "nothing", "x"), OSError("no number")])
def test_others_may_be_bugs(error: OSError) -> None:
    assert refusal_of_machine(error) is None
