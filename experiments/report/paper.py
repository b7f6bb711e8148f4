"""What the papers say about each experiment; the texts and values are in ``paper.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict


class Published(BaseModel):
    """One table or figure of a paper."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    where: str
    """Section, and what of it."""
    says: tuple[str, ...]
    """Its findings, one sentence each."""
    setup: str = ""
    """Machines, network and data that it was measured with; empty if nothing was measured."""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """Its values as a table; empty if it prints none."""


@cache
def published() -> Mapping[str, Published]:
    """By the name of the experiment."""
    text = files("nearsight.experiments.report").joinpath("paper.toml").read_text(encoding="utf-8")
    read = tomllib.loads(text)
    setups: dict[str, str] = read.pop("setups")
    found = {}
    for name, values in read.items():
        setup = values.get("setup", "")
        found[name] = Published(**{**values, "setup": setups.get(setup, setup)})
    return MappingProxyType(found)
