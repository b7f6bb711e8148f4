"""Wheel and sdist contain every module, although the code is in linked folders.

They are also installed by pip into a clean environment, and run in an empty folder.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from nearsight import __version__
from nearsight.common.recognition.classifiers.registry import build_classifier
from support.objects import random_model

# A fixture downloads libraries.
pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
FOLDERS = ("cloud", "common", "device", "edge", "experiments", "protos")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
SMALLEST_DEMO = ("demo", "--quick", "--objects", "60", "--visitors", "1", "--seconds", "1")

PATTERNS = ("*.py", "*.proto", "*.pyi", "*.css", "*.html", "*.js", "*.svg", "*.toml", "*.webmanifest")


def build(kind: str, source: Path, out: Path) -> Path:
    """Build a distribution with the backend itself; an installer would only add downloads."""
    out.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(out)],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, as a build leaves files beside its source."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "src").mkdir()
    shutil.copytree(ROOT / "src/nearsight", source / "src/nearsight", symlinks=True)
    return build("sdist", source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as `pip install` does where there is no wheel."""
    folder = tmp_path_factory.mktemp("unpacked")
    # Not `tarfile`: the safe way to unpack came with Python 3.11.4, and 3.12 warns of the other one.
    subprocess.run(["tar", "--extract", "--file", sdist, "--directory", folder], check=True)
    return build("wheel", folder / f"nearsight-{__version__}", tmp_path_factory.mktemp("wheel"))


def expected_files() -> set[str]:
    files = {"nearsight/__init__.py", "nearsight/__main__.py", "nearsight/py.typed"}
    for folder in FOLDERS:
        for pattern in PATTERNS:
            files |= {f"nearsight/{path.relative_to(ROOT)}" for path in (ROOT / folder).rglob(pattern)}
    return files


def test_the_wheel_holds_every_module_and_proto(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert wheel.name == f"nearsight-{__version__}-py3-none-any.whl"
    assert expected_files() - names == set()
    foreign = {name for name in names if not name.startswith(("nearsight/", f"nearsight-{__version__}."))}
    assert foreign == set()


def test_the_sdist_holds_real_files_instead_of_links(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive.getmembers()}
    assert {f"src/{name}" for name in expected_files()} - members.keys() == set()
    assert not [name for name, member in members.items() if member.issym() or member.islnk()]
    assert {"LICENSE", "README.md", "setup.cfg", "pyproject.toml"} <= members.keys()


def test_the_wheel_runs_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
        entry_points = archive.read(f"nearsight-{__version__}.dist-info/entry_points.txt").decode()
    assert "nearsight = nearsight.__main__:main" in entry_points
    code = "import sys; sys.path.insert(0, sys.argv[1]); import nearsight.__main__ as m; print(m.__file__); "
    code += "m.main(['--version'])"
    shown = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd="/", capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines() == [
        str(tmp_path / "nearsight/__main__.py"),
        f"nearsight {__version__}",
    ]


class Environment:
    """A virtual environment without the repository, and an empty folder to work in."""

    def __init__(self, folder: Path) -> None:
        self._programs, self.folder = folder / "venv/bin", folder / "work"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        self.folder.mkdir()

    def run(self, program: str, *arguments: str) -> str:
        """What a program of the environment prints; it must succeed."""
        inherited = {
            key: text for key, text in os.environ.items() if not key.startswith(("PYTHON", "NEARSIGHT"))
        }
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            env=inherited | {"PATH": f"{self._programs}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def libraries(self) -> set[str]:
        """Names of what is installed."""
        return {one["name"].lower() for one in json.loads(self.run("pip", "list", "--format=json"))}


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A plain install of the wheel."""
    environment = Environment(tmp_path_factory.mktemp("environment"))
    environment.run("pip", "install", "--quiet", str(wheel))
    return environment


def test_a_plain_install_has_no_library_of_extras(environment: Environment) -> None:
    environment.run("pip", "check")
    assert not environment.libraries() & {"scikit-learn", "scipy", "matplotlib", "onnxruntime", "starlette"}
    where = environment.run("python", "-c", "import nearsight; print(nearsight.__file__)")
    assert where.startswith(str(environment.folder.parent / "venv"))


def test_the_five_lines_of_the_readme_answer_after_a_plain_install(environment: Environment) -> None:
    lines = re.search(
        r"```python\n(from nearsight import LocalRecognizer\n.*?)```", README.read_text(), re.DOTALL
    )
    assert lines is not None
    size = ("--objects", "3", "--photos", "1", "--unknown", "0")
    environment.run("nearsight", "museum", "generate", "--out", "museum", *size)
    shutil.copy(environment.folder / "museum/queries/0002_01.jpg", environment.folder / "photo.jpg")
    assert environment.run("python", "-c", lines.group(1)) == "Study in the evening\n"


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_the_demo_runs_after_an_install(
    environment: Environment, request: pytest.FixtureRequest, kind: str
) -> None:
    environment.run("pip", "uninstall", "--quiet", "--yes", "nearsight")
    assert "nearsight" not in environment.libraries()
    environment.run("pip", "install", "--quiet", f"{request.getfixturevalue(kind)}[experiments]")
    environment.run("pip", "check")
    shown = environment.run("nearsight", *SMALLEST_DEMO)
    assert "Every one of" in shown
    summary = environment.folder / "results/demo/summary.json"
    assert summary.is_file()
    summary.unlink()  # the museum stays: the other demo uses it again


@pytest.mark.needs("falconn")
def test_the_falconn_that_make_builds_recognises() -> None:
    models = [random_model(f"object {seed}", seed) for seed in range(1, 6)]
    classifier = build_classifier("falconn", models)
    candidates = next(classifier.rounds(models[2].views[0]))
    assert candidates[0].object_id == "object 3"
