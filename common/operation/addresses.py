"""Which daemons a command asks: those that a person names, or those of the settings and of this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nearsight.common.config.base import (
    DEFAULT_ORIGIN,
    DaemonSettings,
    Loaded,
    RpcDaemonSettings,
    import_settings_classes,
    load_settings,
)
from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.security import ClientSecurity, read_secret_key


@dataclass(frozen=True, slots=True)
class Address:
    """A daemon to ask."""

    endpoint: str
    """tcp://host:port, or the URL of a gateway."""
    daemon: str = ""
    """"cloud", "edge", "device" or "gateway"; empty if a person named the endpoint alone."""
    security: ClientSecurity | None = None
    """The keys, if it uses encryption."""
    expected: bool = True
    """Whether it should run: a person named it, or the settings do. Else it is only where it would be."""


@dataclass(frozen=True, slots=True)
class AskedFor:
    """What the arguments of a command say about the daemons to ask."""

    endpoints: Sequence[str] = ()
    """None: those of the settings."""
    config: Path | None = None
    """Settings file, if it is not the usual one."""
    key: Path | None = None
    """Secret key of whoever asks; else that of the daemon whose settings name the address."""
    server_keys: Sequence[str] = ()
    """Public keys: one for all endpoints, or one for each; else those of the settings."""


def addresses(targets: Mapping[str, str], asked: AskedFor, kinds: Collection[str]) -> tuple[Address, ...]:
    """The daemons to ask.

    Parameters
    ----------
    targets : mapping of str to str
        Daemon → its settings class as ``module:attribute``.
    asked : AskedFor
        The arguments of the command.
    kinds : collection of str
        Daemons to ask if no endpoint is named.

    Raises
    ------
    ConfigurationError
        If the settings or keys cannot be used, or endpoints and keys do not go together.
    """
    classes = import_settings_classes(targets)
    loaded = {name: load_settings(one, name, asked.config) for name, one in classes.items()}
    known = _merged(_of_settings(loaded, asked.key))
    if not asked.endpoints:
        if asked.server_keys:
            raise ConfigurationError(
                "--server-key belongs to an endpoint", advice="name the endpoint that has this key"
            )
        return tuple(one for kind in kinds for one in known.values() if one.daemon == kind)
    keys = asked.server_keys
    if len(keys) not in {0, 1, len(asked.endpoints)}:
        raise ConfigurationError(
            f"{len(keys)} times --server-key for {len(asked.endpoints)} endpoints",
            advice="give one for all, or one for each in the same order",
        )
    if keys:
        if asked.key is None:
            raise _apart()
        each = [keys[0]] * len(asked.endpoints) if len(keys) == 1 else keys
        securities = [ClientSecurity(asked.key, key) for key in each]
        return tuple(
            Address(endpoint, security=security)
            for endpoint, security in zip(asked.endpoints, securities, strict=True)
        )
    found = tuple(replace(known.get(one, Address(one)), expected=True) for one in asked.endpoints)
    if asked.key is not None and not all(one.security for one in found):
        raise _apart()
    return found


def _apart() -> ConfigurationError:
    return ConfigurationError(
        "--key and --server-key go together",
        advice="give both, or neither for daemons without encryption",
    )


def _of_settings(loaded: Mapping[str, Loaded[DaemonSettings]], key: Path | None) -> Iterator[Address]:
    """What each daemon's settings say about others, then about itself."""
    named = set()
    for one in loaded.values():
        if not isinstance(one.settings, RpcDaemonSettings):
            continue
        for tier in one.settings.next_tiers():
            own, setting = key or one.settings.security.secret_key_file, f"the public key of {tier.endpoint}"
            security = one.settings.security.model_copy(update={"secret_key_file": own})
            yield Address(tier.endpoint, tier.daemon, security.towards(tier.public_key, setting=setting))
            named.add(tier.daemon)
    for name, one in loaded.items():
        endpoint = one.settings.endpoint_here()
        runs = any(
            origin != DEFAULT_ORIGIN and (setting.startswith("server.") or not one.settings.read_by_commands)
            for setting, origin in one.origins.items()
        )
        if endpoint and (runs or name not in named):
            yield Address(endpoint, name, _towards(one.settings, key), expected=runs)


def _towards(settings: DaemonSettings, key: Path | None) -> ClientSecurity | None:
    """Keys to ask a daemon of this machine, whose public key is in its secret file."""
    server = settings.security.for_server() if isinstance(settings, RpcDaemonSettings) else None
    if server is None:
        return None
    public = read_secret_key(server.secret_key_file).public
    return ClientSecurity(key or server.secret_key_file, public)


def _merged(found: Iterator[Address]) -> dict[str, Address]:
    """By endpoint: the first that is said about each, and whether anything says that it should run."""
    merged: dict[str, Address] = {}
    for one in found:
        before = merged.setdefault(one.endpoint, one)
        if one.expected and not before.expected:
            merged[one.endpoint] = replace(before, expected=True)
    return merged
