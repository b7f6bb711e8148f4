"""Requirements of a test on the machine: ``@pytest.mark.needs("namespaces")``, and commands to meet them.

If the machine lacks a requirement, the test is skipped and the command is shown. The test fails instead if
the environment variable ``NEARSIGHT_REQUIRE`` names the requirement (``NEARSIGHT_REQUIRE=falconn,sshd``), so
that CI skips no test.
"""

import functools
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nearsight.experiments.links.namespaces import unavailable_reason
from nearsight.experiments.rig.agent import cgroup_version

# A test with one of these requirements is also a system test.
SYSTEM_NEEDS = frozenset({"cgroups", "chromium", "mounts", "namespaces", "sshd", "tap"})
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"


def program(name: str) -> str | None:
    """Path of a program; also searches the folders that only root has on its path."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}")


def _missing_falconn() -> str:
    return "" if importlib.util.find_spec("falconn") else "falconn is not installed: run `make falconn`"


def _missing_libcachesim() -> str:
    found = importlib.util.find_spec("libcachesim")
    return "" if found else "libcachesim is not installed: run `pip install libcachesim`"


def _missing_chromium() -> str:
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: run `pip install 'nearsight[dev]'`"
    return "" if program("chromium") else "chromium is not installed: run `apt-get install chromium`"


def _missing_namespaces() -> str:
    if program("ip") is None:
        return "ip is not installed: run `apt-get install iproute2`"
    reason = unavailable_reason()
    return f"no network namespaces ({reason}): run `sudo make test-system`" if reason else ""


def _missing_mounts() -> str:
    with tempfile.TemporaryDirectory() as place:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], capture_output=True, check=False)
        if mounted.returncode == 0:
            subprocess.run(["umount", place], check=False)
    return "" if mounted.returncode == 0 else "this user may not mount: run `sudo make test-system`"


def _missing_sshd() -> str:
    if program("sshd") and program("ssh"):
        return ""
    return "no SSH here: run `apt-get install openssh-server openssh-client`"


def _missing_tap() -> str:
    return "" if Path("/dev/net/tun").exists() else "no TAP devices: run `modprobe tun` as root"


def _missing_cgroups() -> str:
    return "" if cgroup_version() else "this user may not make cgroups: run `sudo make test-system`"


def _missing_ipv6() -> str:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return "no IPv6 on loopback: run `sysctl -w net.ipv6.conf.lo.disable_ipv6=0` as root"
    return ""


def _missing_similarity() -> str:
    there = all(importlib.util.find_spec(name) for name in ("gptcache", "lshashpy3", "pkg_resources"))
    return "" if there else "its peers are not installed: run `pip install 'nearsight[similarity]'`"


def _missing_zoo() -> str:
    there = all(importlib.util.find_spec(name) for name in ("keras", "torch", "onnxscript"))
    return "" if there else "what makes networks is not installed: run `pip install 'nearsight[zoo]'`"


_MISSING: dict[str, Callable[[], str]] = {
    "cgroups": _missing_cgroups,
    "chromium": _missing_chromium,
    "falconn": _missing_falconn,
    "libcachesim": _missing_libcachesim,
    "ipv6": _missing_ipv6,
    "mounts": _missing_mounts,
    "namespaces": _missing_namespaces,
    "similarity": _missing_similarity,
    "sshd": _missing_sshd,
    "tap": _missing_tap,
    "zoo": _missing_zoo,
}


@functools.cache
def missing(need: str) -> str:
    """Why this machine does not meet the requirement, and the command to meet it; empty if it does."""
    return _MISSING[need]()


def require(need: str) -> None:
    """Skip the test if the machine lacks ``need``; fail it if ``NEARSIGHT_REQUIRE`` names it."""
    if reason := missing(need):
        if need in os.environ.get("NEARSIGHT_REQUIRE", "").split(","):
            pytest.fail(f"NEARSIGHT_REQUIRE names {need}, but {reason}")
        pytest.skip(reason)
