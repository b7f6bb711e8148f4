"""Checks that the libraries of the experiments are installed, before a command begins."""

from __future__ import annotations

from importlib.util import find_spec

from nearsight.common.errors import MissingDependency

LIBRARIES = ("jinja2", "matplotlib", "psutil", "pyroute2", "scipy", "sklearn")
"""Modules of the libraries that the extra ``experiments`` installs."""

_OTHER_NAMES = {"sklearn": "scikit-learn"}


def require_experiments(
    command: str, libraries: tuple[str, ...] = LIBRARIES, *, extra: str = "experiments"
) -> None:
    """Check that the libraries which a command needs are installed.

    Raises
    ------
    MissingDependency
        Names the missing libraries and how to install them.
    """
    missing = [_OTHER_NAMES.get(name, name) for name in libraries if find_spec(name) is None]
    if missing:
        raise MissingDependency(
            f"`nearsight {command}` needs {', '.join(missing)}",
            advice=f"pip install 'nearsight[{extra}]'",
        )
