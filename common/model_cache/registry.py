"""Registry of all policies by name. It finds the modules of `policies` itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from nearsight.common.errors import ConfigurationError
from nearsight.common.model_cache import policies
from nearsight.common.model_cache.policy import Knowledge, Policy


@cache
def policy_classes() -> Mapping[str, type[Policy]]:
    """All policy classes by name, sorted."""
    found: dict[str, type[Policy]] = {}
    for module in pkgutil.iter_modules(policies.__path__):
        contents = vars(importlib.import_module(f"{policies.__name__}.{module.name}"))
        for one in contents.values():
            if isinstance(one, type) and issubclass(one, Policy) and "name" in vars(one):
                found[one.name] = one
    return MappingProxyType(dict(sorted(found.items())))


def policy_names(*, clairvoyant: bool = True) -> tuple[str, ...]:
    """Names that `make_policy` accepts; without ``clairvoyant`` only those that can be used in a daemon."""
    return tuple(name for name, one in policy_classes().items() if clairvoyant or not one.clairvoyant)


def make_policy(name: str, knowledge: Knowledge | None = None) -> Policy:
    """Create a policy for one cache.

    Raises
    ------
    ConfigurationError
        If there is no policy of that name.
    """
    chosen = policy_classes().get(name)
    if chosen is None:
        raise ConfigurationError(
            f"there is no policy {name!r} for models", advice=f"choose one of {', '.join(policy_names())}"
        )
    return chosen.make(knowledge or Knowledge())
