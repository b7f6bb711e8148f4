"""Smoke runs of experiments, executed once for the tests of all workers, and a small museum."""

import fcntl
import shutil
from pathlib import Path

import pytest

from nearsight.__main__ import main
from nearsight.experiments.museum.generation import generate_museum
from nearsight.experiments.museum.settings import MuseumSettings


class SmokeRuns:
    """Runs experiments with the command, in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir(exist_ok=True)

    def folder(self, name: str) -> Path:
        """The results of an experiment, which is run first if necessary. Tests must not change them."""
        finished = self.root / f"{name}.finished"
        with (self.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not finished.exists():
                with pytest.MonkeyPatch.context() as patch:
                    patch.chdir(self.root)
                    assert main(["experiment", "run", name, "--smoke"]) == 0
                finished.touch()
        return self.root / f"results/experiments/{name}-smoke"

    def copy(self, name: str, to: Path) -> Path:
        """A copy of the results, which a test may change."""
        return Path(shutil.copytree(self.folder(name), to / f"{name}-smoke"))


@pytest.fixture(scope="session")
def smoke_runs(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> SmokeRuns:
    base = tmp_path_factory.getbasetemp()
    return SmokeRuns((base if worker_id == "master" else base.parent) / "experiments")


@pytest.fixture(scope="session")
def small_museum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated museum of six exhibits. Tests must not change it."""
    folder = tmp_path_factory.mktemp("museums") / "small"
    generate_museum(folder, MuseumSettings(objects=6, photos_per_object=1, unknown_photos=3))
    return folder
