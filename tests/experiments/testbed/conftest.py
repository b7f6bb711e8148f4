"""One sshd for all tests of nodes over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

from support.sshd import Sshd, running_sshd


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All libraries that a node would download: those installed here without nearsight and its extras."""
    folder = tmp_path_factory.mktemp("libraries")
    left_out = {"nearsight", "pip", "psutil", "matplotlib", "kademlia", "pyroute2"}
    for path in Path(numpy.__file__).parents[1].iterdir():
        if path.suffix != ".pth" and not any(path.name.startswith(name) for name in left_out):
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> Iterator[Sshd]:
    folder = tmp_path_factory.mktemp("ssh") / "sshd"
    with running_sshd(folder, {"PYTHONPATH": str(libraries), "OMP_NUM_THREADS": "1"}) as served:
        yield served


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of nodes over SSH; their environment is installed once for all tests."""
    return tmp_path_factory.mktemp("node") / "remote home"
