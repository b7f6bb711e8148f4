"""One device that looks for one model."""

from __future__ import annotations

import pytest

from support.model_source import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()
