"""Files that are written atomically."""

import os
from pathlib import Path

import pytest

from nearsight.common.files import check_writable, replacing, write_atomically
from support.disks import full_disk


def test_a_full_disk_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    for name in ("old", "new"):
        with full_disk(), pytest.raises(OSError, match=name) as caught:
            write_atomically(tmp_path / name, bytes(10_000))
        assert caught.value.filename == str(tmp_path / name)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("old", b"old")]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    for content in (b"first", b"second"):
        write_atomically(tmp_path / "link", content)
        assert (tmp_path / "file").read_bytes() == content
    assert (tmp_path / "link").is_symlink()


def test_a_device_is_written_directly(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "link", b"x")
    assert [*tmp_path.iterdir()] == [tmp_path / "link"]
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize(("mode", "rights"), [(None, 0o640), (0o600, 0o600), (0o644, 0o644)])
def test_rights_are_those_given_or_of_the_umask(tmp_path: Path, mode: int | None, rights: int) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"x", mode)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == rights


def test_a_folder_is_created_but_not_replaced(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "file", b"x")
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "new", b"x")
    assert (tmp_path / "new" / "file").read_bytes() == b"x"
    assert [*tmp_path.iterdir()] == [tmp_path / "new"]


def test_a_file_that_a_library_writes_has_the_same_suffix_and_appears_at_the_end(tmp_path: Path) -> None:
    with replacing(tmp_path / "clip.mp4") as aside:
        assert aside.suffix == ".mp4"
        aside.write_bytes(b"x")
        assert not (tmp_path / "clip.mp4").exists()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("clip.mp4", b"x")]


@pytest.mark.parametrize("name", ["a" * 255, "é" * 125 + ".json"])
def test_a_file_may_have_the_longest_name_that_the_disk_permits(tmp_path: Path, name: str) -> None:
    write_atomically(tmp_path / name, b"x")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"x")]


def test_two_threads_may_write_the_same_file(tmp_path: Path) -> None:
    with replacing(tmp_path / "file") as first:
        write_atomically(tmp_path / "file", b"second")
        first.write_bytes(b"first")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"first")]


def test_a_place_is_checked_before_the_work_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    for place in (tmp_path / "file", tmp_path / "new" / "file", Path("/dev/full")):
        check_writable(place)
    for place in (tmp_path / "file" / "below", tmp_path):
        with pytest.raises(OSError, match=place.name) as caught:
            check_writable(place)
        assert caught.value.filename == str(place)
    assert (tmp_path / "file").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "new"]


def test_a_file_is_not_replaced_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(ValueError, match="wrong"), replacing(tmp_path / "file") as aside:
        aside.write_bytes(b"new")
        raise ValueError("wrong")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "no folder" / "file"):
        pass
    assert str(caught.value).endswith(f"'{tmp_path / 'no folder' / 'file'}'")
