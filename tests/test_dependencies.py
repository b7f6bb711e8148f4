"""`pip install nearsight` suffices for the SDK and the daemons; other commands name the extra that they need.

Libraries that only extras install are blocked here; `test_packaging.py` installs the wheel.
"""

import json
import subprocess
import sys
from configparser import ConfigParser
from functools import cache
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import nearsight
from nearsight.__main__ import COMMANDS, SETTINGS_CLASSES
from support.import_graph import ROOT, reached

NEEDS_MORE = {
    "experiments": (
        ("demo", "--quick"),
        ("profile", "museum"),
        ("plan", "log.csv", "--costs", "costs.csv"),
        ("bench", "rpc"),
        ("experiment", "run", "fig3.4"),
        ("experiment", "report"),
        ("testbed", "run", "testbed.toml"),
    ),
    "zoo": (("models", "build", "MobileNetV2"),),
    "web": (("gateway",),),
}
"""Extra → commands that fail at once without it."""


def required(texts: list[str]) -> set[str]:
    """Distributions that are installed for these requirements, without any extra."""
    found, new = set[str](), texts
    while new:
        needed = {
            canonicalize_name(one.name)
            for one in map(Requirement, new)
            if one.marker is None or one.marker.evaluate({"extra": ""})
        }
        new = [text for name in needed - found for text in requires(name) or ()]
        found |= needed
    return found


@cache
def of_extras() -> list[str]:
    """Top-level modules of libraries that a plain install does not include."""
    settings = ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    lines = settings["options"]["install_requires"].splitlines()
    plain = {"nearsight"} | required([line for line in lines if line and not line.startswith("#")])
    return [
        module
        for module, owners in packages_distributions().items()
        if not plain & {canonicalize_name(owner) for owner in owners}
    ]


def run_without_extras(code: str, data: object) -> subprocess.CompletedProcess[str]:
    """Run code that uses `data`, with only the libraries of a plain install."""
    blocked = (
        "import json, sys; blocked, data = json.load(sys.stdin); sys.modules.update(dict.fromkeys(blocked))"
    )
    return subprocess.run(
        [sys.executable, "-c", f"{blocked}\n{code}"],
        input=json.dumps([of_extras(), data]),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_a_plain_install_has_no_library_of_experiments() -> None:
    assert {"matplotlib", "onnxruntime", "psutil", "scipy", "sklearn"} <= set(of_extras())
    assert not {"cv2", "faiss", "google", "numpy", "zmq"} & set(of_extras())


@pytest.mark.system
def test_the_sdk_and_commands_without_an_extra_import_only_what_a_plain_install_has() -> None:
    starts = {command.target.partition(":")[0] for command in COMMANDS.values() if not command.extra}
    starts |= {settings_class.partition(":")[0] for settings_class in SETTINGS_CLASSES.values()}
    starts |= {getattr(nearsight, name).__module__ for name in nearsight.__all__ if name != "__version__"}
    modules = reached({name.removeprefix("nearsight.") for name in starts})
    assert {"device.recognizer", "device.daemon", "edge.daemon", "cloud.daemon"} <= modules
    done = run_without_extras(
        "from importlib import import_module\nfor name in data: import_module(f'nearsight.{name}')",
        sorted(modules),
    )
    assert done.stderr == ""


@pytest.mark.parametrize("extra", NEEDS_MORE)
def test_a_command_without_its_libraries_ends_with_one_line_that_has_the_pip_command(extra: str) -> None:
    commands = NEEDS_MORE[extra]
    done = run_without_extras(
        "from nearsight.__main__ import main\nprint([main(arguments) for arguments in data])", commands
    )
    assert done.stdout.strip() == str([5] * len(commands))
    lines = done.stderr.splitlines()
    assert len(lines) == len(commands)
    for line, (name, *_) in zip(lines, commands, strict=True):
        assert line.startswith(f"error: `nearsight {name}")
        assert line.endswith(f"; pip install 'nearsight[{extra}]'")
