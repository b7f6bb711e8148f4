"""A database of catalogues."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nearsight.common.catalogue.store import CatalogueStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CatalogueStore]:
    with CatalogueStore(tmp_path / "cloud.db") as opened:
        yield opened
