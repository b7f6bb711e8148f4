"""Smoke runs of experiments, made once for all tests: they share museums and rows."""

from pathlib import Path

import pytest

from nearsight.__main__ import main


class SmokeRuns:
    """Runs experiments as a person does, in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._finished: set[str] = set()

    def folder(self, name: str) -> Path:
        """The results of an experiment, which is run if it was not yet."""
        if name not in self._finished:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(self.root)
                assert main(["experiment", "run", name, "--smoke"]) == 0
            self._finished.add(name)
        return self.root / f"results/experiments/{name}-smoke"


@pytest.fixture(scope="session")
def smoke_runs(tmp_path_factory: pytest.TempPathFactory) -> SmokeRuns:
    return SmokeRuns(tmp_path_factory.mktemp("experiments"))
