"""Looking into a folder of images: names without regard to case, and only files that are images."""

from __future__ import annotations

from pathlib import Path

from nearsight.common.errors import InvalidArgument, NotFound

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


def require_folder(folder: Path) -> None:
    """Say what is wrong if ``folder`` is no folder.

    Raises
    ------
    NotFound
        If nothing of that name exists.
    InvalidArgument
        If it is a file.
    """
    if not folder.exists():
        raise NotFound(f"there is no folder {folder}", advice="check the path")
    if not folder.is_dir():
        raise InvalidArgument(f"{folder} is a file", advice="name the folder that holds the data set")


def child(folder: Path, name: str) -> Path | None:
    """The entry called ``name`` in any mix of upper and lower case, or None."""
    return next((entry for entry in sorted(folder.iterdir()) if entry.name.lower() == name), None)


def subfolders(folder: Path) -> tuple[Path, ...]:
    """Visible sub-folders, sorted by name."""
    return tuple(
        sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    )


def images(folder: Path) -> tuple[Path, ...]:
    """Image files directly in ``folder``, sorted by name; anything else there is ignored."""
    return tuple(
        sorted(
            entry
            for entry in folder.iterdir()
            if entry.suffix.lower() in IMAGE_SUFFIXES and not entry.name.startswith(".") and entry.is_file()
        )
    )
