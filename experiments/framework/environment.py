"""The environment of a measurement: machine, versions and commit. It is stored in every result file."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from nearsight import __version__

_PACKAGES = (
    "numpy",
    "opencv-python-headless",
    "faiss-cpu",
    "falconn",
    "onnxruntime",
    "kademlia",
    "gptcache",
    "lshashpy3",
    "pyzmq",
    "protobuf",
    "scikit-learn",
    "matplotlib",
)


def describe_environment() -> dict[str, object]:
    """Return machine, versions of Python and packages, commit, time and load, ready for JSON."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {
            "nearsight": __version__,
            **{name: found for name in _PACKAGES if (found := _version(name))},
        },
        "commit": _commit(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    """Commit of the working tree, with ``+`` if it has uncommitted changes; empty outside a repository.

    An installed package may lie in a repository of its user, whose files it does not belong to.
    """
    path = Path(__file__).resolve()
    folder = path.parent
    try:
        _git(folder, "ls-files", "--error-unmatch", path.name)
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        return commit + "+" * bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10, check=True
    ).stdout.strip()
