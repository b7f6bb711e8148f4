"""The daemons that a command calls: those that the user names, or those of settings and this machine."""

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
from nearsight.common.rpc.security import ClientSecurity, keys_incomplete, read_secret_key


@dataclass(frozen=True, slots=True)
class Address:
    """A daemon to call."""

    endpoint: str
    """tcp://host:port, or the URL of a gateway."""
    daemon: str = ""
    """"cloud", "edge", "device" or "gateway"; empty if the user named the endpoint only."""
    security: ClientSecurity | None = None
    """The keys, if it uses encryption."""
    expected: bool = True
    """Whether it should run, because the user or the settings name it. False for a default address."""


def addresses(
    targets: Mapping[str, str],
    kinds: Collection[str],
    endpoints: Sequence[str] | None = None,
    config: Path | None = None,
    key: Path | None = None,
    server_keys: Sequence[str] | None = None,
) -> tuple[Address, ...]:
    """The daemons that the arguments of a command select.

    Parameters
    ----------
    targets : mapping of str to str
        Daemon → its settings class as ``module:attribute``.
    kinds : collection of str
        Daemons to call if no endpoint is named.
    endpoints : sequence of str, optional
        Named endpoints; without any: those of the settings.
    config : Path, optional
        Settings file; None: the default one.
    key : Path, optional
        Secret key of the caller; None: the key of the daemon whose settings name the address.
    server_keys : sequence of str, optional
        Public keys: one for all endpoints, or one for each; without any: those of the settings.

    Raises
    ------
    ConfigurationError
        If the settings or keys cannot be used, or endpoints and keys do not match.
    """
    classes = import_settings_classes(targets)
    loaded = {name: load_settings(one, name, config) for name, one in classes.items()}
    known = _merged(_of_settings(loaded, key))
    if not endpoints:
        if server_keys:
            raise ConfigurationError(
                "--server-key belongs to an endpoint", advice="name the endpoint that has this key"
            )
        return tuple(one for kind in kinds for one in known.values() if one.daemon == kind)
    if server_keys:
        if len(server_keys) not in {1, len(endpoints)}:
            raise ConfigurationError(
                f"{len(server_keys)} times --server-key for {len(endpoints)} endpoints",
                advice="give one for all, or one for each in the same order",
            )
        if key is None:
            raise keys_incomplete()
        each = [server_keys[0]] * len(endpoints) if len(server_keys) == 1 else server_keys
        return tuple(
            Address(endpoint, security=ClientSecurity(key, public))
            for endpoint, public in zip(endpoints, each, strict=True)
        )
    found = tuple(replace(known.get(one, Address(one)), expected=True) for one in endpoints)
    if key is not None and not all(one.security for one in found):
        raise keys_incomplete()
    return found


def _of_settings(loaded: Mapping[str, Loaded[DaemonSettings]], key: Path | None) -> Iterator[Address]:
    """The addresses of other daemons in each daemon's settings, then its own address."""
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
    """The keys to call a daemon of this machine; its secret file holds its public key."""
    server = settings.security.for_server() if isinstance(settings, RpcDaemonSettings) else None
    if server is None:
        return None
    public = read_secret_key(server.secret_key_file).public
    return ClientSecurity(key or server.secret_key_file, public)


def _merged(found: Iterator[Address]) -> dict[str, Address]:
    """By endpoint: the first address of each, expected if any of its addresses is."""
    merged: dict[str, Address] = {}
    for one in found:
        before = merged.setdefault(one.endpoint, one)
        if one.expected and not before.expected:
            merged[one.endpoint] = replace(before, expected=True)
    return merged
