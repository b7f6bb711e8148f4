"""Optional libraries in tests: skipped on a contributor's machine that lacks them, required in CI."""

import importlib.util
import os

import pytest


def require_or_skip(library: str) -> None:
    """Skip the calling test if a library is missing; fail it where ``NEARSIGHT_REQUIRE_<LIBRARY>`` is set."""
    if importlib.util.find_spec(library) is not None:
        return
    variable = f"NEARSIGHT_REQUIRE_{library.upper()}"
    if os.environ.get(variable):
        pytest.fail(f"{variable} is set, but {library} is not installed: run `make {library}`")
    pytest.skip(f"{library} is not installed: run `make {library}`")
