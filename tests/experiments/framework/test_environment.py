"""The environment of a measurement."""

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from nearsight.experiments.framework import environment
from nearsight.experiments.framework.environment import describe_environment


def git(folder: Path, *arguments: str) -> str:
    named = ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.org", *arguments]
    return subprocess.run(named, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module in a repository with one commit, to which it does not belong."""
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "first")
    path = tmp_path / "lib" / "environment.py"
    path.parent.mkdir()
    path.touch()
    monkeypatch.setattr(environment, "__file__", str(path))
    return path


def test_the_commit_is_that_of_the_repository_with_the_module(file: Path) -> None:
    git(file.parent, "add", file.name)
    git(file.parent, "commit", "--quiet", "--message", "second")
    commit = git(file.parent, "rev-parse", "--short=12", "HEAD")
    assert describe_environment()["commit"] == commit
    file.write_text("changed")
    assert describe_environment()["commit"] == f"{commit}+"


def test_the_commit_of_a_repository_around_an_installation_is_not_recorded(file: Path) -> None:
    assert file.exists()
    assert describe_environment()["commit"] == ""


def test_the_versions_of_compared_libraries_are_recorded() -> None:
    versions = describe_environment()["versions"]
    assert isinstance(versions, dict)
    for name in ("onnxruntime", "kademlia", "faiss-cpu"):
        assert versions[name] == version(name)
