"""Smoke runs of experiments, made once for all tests of all workers: they share museums and rows."""

import fcntl
import shutil
from pathlib import Path

import pytest

from nearsight.__main__ import main


class SmokeRuns:
    """Runs experiments as a person does, in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir(exist_ok=True)

    def folder(self, name: str) -> Path:
        """The results of an experiment, which is run if it was not yet; only to be read."""
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
        """The same in a folder that a test may change: others read those of `folder` at any time."""
        return Path(shutil.copytree(self.folder(name), to / f"{name}-smoke"))


@pytest.fixture(scope="session")
def smoke_runs(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> SmokeRuns:
    base = tmp_path_factory.getbasetemp()
    return SmokeRuns((base if worker_id == "master" else base.parent) / "experiments")
