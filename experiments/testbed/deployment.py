"""Installs nearsight on a node: one wheel of this working tree, in a virtual environment of its own.

The environment stays on the node when a testbed is taken down. The next testbed reuses it, and installs again
only if the wheel has changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nearsight
from nearsight.common.errors import NotFound, SetupError
from nearsight.experiments.testbed.nodes import WHEEL_MARK, Node, venv_path, venv_python
from nearsight.experiments.testbed.shells import last_line

INSTALL_TIMEOUT_S = 1800.0
"""Timeout of an installation [s]. It is long because OpenCV and faiss are large, and phones are slow."""
_INSTALL, _DONE = "install", "nearsight: done"
_FOLDERS = ("cloud", "common", "device", "edge", "experiments", "protos")
_FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE")
_REAL_PYTHON = ("-c", "import os, sys; print(os.path.realpath(sys.executable))")
_DATE = "315532800"
"""Date of all files in a wheel, so that the same tree gives the same wheel, which is not installed again."""
_BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
_IMPORTS = (
    "import cv2, faiss, zmq; import nearsight.experiments.rig.replay; "
    "import nearsight.experiments.links.shaper, nearsight.experiments.rig.warming; "
    "print(nearsight.__version__)"
)


def find_wheel(given: Path | None, folder: Path) -> Path:
    """The wheel to install: the given one, or one of this working tree, which is built into ``folder``.

    Raises
    ------
    NotFound
        If there is no such file, or no working tree to build from.
    SetupError
        If it cannot be built.
    """
    if given is not None:
        if not given.is_file():
            raise NotFound(f"there is no wheel {given}", advice="correct `wheel` in the inventory")
        return given
    tree = Path(nearsight.__file__).resolve().parent.parent.parent
    if not (tree / "setup.cfg").is_file():
        raise NotFound(
            "this nearsight was not started from a working tree: there is nothing to build a wheel from",
            advice='name one in the inventory: wheel = "nearsight-….whl"',
        )
    return build_wheel(tree, folder / "wheel")


def build_wheel(tree: Path, out: Path) -> Path:
    """Build a wheel from a copy of a working tree, because a build leaves files beside its source.

    Raises
    ------
    SetupError
        If the build fails.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for file in _FILES:
            shutil.copy(tree / file, copy)
        for folder in _FOLDERS:
            shutil.copytree(tree / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "src").mkdir()
        shutil.copytree(tree / "src/nearsight", copy / "src/nearsight", symlinks=True)
        built = subprocess.run(
            [sys.executable, "-c", _BUILD, str(out.resolve())],
            cwd=copy,
            capture_output=True,
            check=False,
            env={**os.environ, "SOURCE_DATE_EPOCH": _DATE},
        )
    if built.returncode != 0:
        raise SetupError(
            f"the wheel cannot be built: {last_line(built.stderr)}", advice="pip install 'setuptools>=77'"
        )
    return next(out.glob("*.whl"))


def deploy(node: Node, wheel: Path) -> bool:
    """Install a wheel on a node unless it is installed already, for this Python; returns whether it did.

    Raises
    ------
    SetupError
        If the node cannot create an environment, or a library has no build for it; with pip's last message.
    """
    host = node.host
    python = _output_of(node, [host.spec.python, *_REAL_PYTHON]).strip()  # python3 may have been upgraded
    whole = f"{hashlib.sha256(wheel.read_bytes()).hexdigest()} {python}"
    venv, mark = venv_path(host), f"{venv_path(host)}/{WHEEL_MARK}"
    if _output_of(node, ["cat", mark]) == whole:
        return False
    node.shell.run(["rm", "-f", mark])  # an installation that is interrupted leaves neither wheel whole
    remote = f"{host.spec.folder}/{wheel.name}"
    node.shell.put(wheel, remote)
    make = [host.spec.python, "-m", "venv", *(["--system-site-packages"] * host.spec.system_packages), venv]
    if _output_of(node, [venv_python(host), *_REAL_PYTHON]).strip() != python:
        make.append("--clear")  # an environment that may exist was created by another Python
    _install(node, make)
    pip = [venv_python(host), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _install(node, [*pip, *host.spec.pip, remote])
    # The same version may be installed from an earlier state of the working tree.
    _install(node, [*pip, "--force-reinstall", "--no-deps", "--no-index", remote])
    _install(node, [venv_python(host), "-c", _IMPORTS])
    node.shell.run(["sh", "-c", 'printf %s "$1" >"$2"', "sh", whole, mark])
    return True


def _output_of(node: Node, command: list[str]) -> str:
    """Output of a command; empty if it fails."""
    try:
        return node.shell.run(command).decode()
    except SetupError:
        return ""


def _install(node: Node, command: list[str]) -> None:
    """Run a long command as a daemon, which ends with the testbed and survives a broken connection."""
    node.order("start", name=_INSTALL, command=["sh", "-c", f'"$@" && echo "{_DONE}"', "sh", *command])
    log = str(node.order("wait", name=_INSTALL, until="ended", timeout_s=INSTALL_TIMEOUT_S)["log"])
    node.stop([_INSTALL])
    if not log.endswith(_DONE):
        raise SetupError(
            f"nearsight cannot be installed on {node.host.name}: {log}",
            advice="docs/testbed.md lists what a node needs; the node's key `pip` has options of pip install",
        )
