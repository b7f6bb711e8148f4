"""The tree of errors: codes, exit codes, and transfer between processes."""

import errno
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.common import errors
from nearsight.common.errors import (
    EXIT_CODES,
    NearsightError,
    StatusCode,
    as_setup_error,
    error_from_status,
)
from nearsight.protos import rpc_pb2


def tree(root: type[NearsightError] = NearsightError) -> Iterator[type[NearsightError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


@pytest.mark.parametrize("error", list(tree()), ids=lambda error: error.__name__)
def test_every_error_has_an_exit_code_that_is_explained(error: type[NearsightError]) -> None:
    assert error.exit_code in EXIT_CODES
    assert error.exit_code != 0


@pytest.mark.parametrize("error", list(tree()), ids=lambda error: error.__name__)
def test_the_tree_in_the_docstring_shows_every_error(error: type[NearsightError]) -> None:
    assert f" {error.__name__} " in f"{errors.__doc__} ".replace("\n", " ")


@pytest.mark.parametrize("error", list(tree()), ids=lambda error: error.__name__)
def test_an_error_is_pickled_completely(error: type[NearsightError]) -> None:
    copy = pickle.loads(pickle.dumps(error("what happened", advice="what to do")))
    assert type(copy) is error
    assert (copy.message, copy.advice) == ("what happened", "what to do")


def test_message_and_advice_make_one_line() -> None:
    assert (
        str(NearsightError("port 1 is in use", advice="choose another")) == "port 1 is in use; choose another"
    )
    assert str(NearsightError("port 1 is in use")) == "port 1 is in use"


@pytest.mark.parametrize("code", [code for code in StatusCode if code is not StatusCode.OK])
def test_every_status_except_ok_becomes_an_error_with_that_status(code: StatusCode) -> None:
    assert error_from_status(code, "m", "a").code is code


def test_the_status_codes_are_those_of_the_wire() -> None:
    assert {code.name: code.value for code in StatusCode} == dict(rpc_pb2.Status.items())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            PermissionError(errno.EACCES, "denied", "/lab/rows.csv"),
            "Permission denied: /lab/rows.csv; give access to it, or name another location",
        ),
        (OSError(errno.ENOSPC, "full"), "No space left on device; free some space"),
        (
            NotADirectoryError(errno.ENOTDIR, "no folder", "/lab/rows.csv/cells"),
            "Not a directory: /lab/rows.csv/cells; a part of the path is a file",
        ),
        (
            IsADirectoryError(errno.EISDIR, "a folder", "/lab/edge.json"),
            "Is a directory: /lab/edge.json; name a file, not a folder",
        ),
        (
            OSError(errno.EBUSY, "busy", "/data/tokens.json"),
            "Device or resource busy: /data/tokens.json; a mounted file cannot be replaced: mount its folder",
        ),
    ],
)
def test_a_refusal_by_the_system_names_the_file_and_the_next_step(error: OSError, said: str) -> None:
    assert str(as_setup_error(error)).startswith(said)


def test_a_file_in_the_place_of_a_new_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").touch()
    with pytest.raises(FileExistsError) as caught:
        (tmp_path / "rows.csv").mkdir(exist_ok=True)
    assert str(as_setup_error(caught.value)) == (
        f"File exists: {tmp_path / 'rows.csv'}; a file has this name; name another location"
    )


def test_a_name_that_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long") as caught:
        (tmp_path / ("a" * 256)).exists()
    assert str(as_setup_error(caught.value)).endswith("aaa; give a shorter name")


@pytest.mark.parametrize("error", [FileNotFoundError(errno.ENOENT, "nothing", "x"), OSError("no number")])
def test_other_operating_system_errors_are_not_converted(error: OSError) -> None:
    assert as_setup_error(error) is None
