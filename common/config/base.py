"""The settings that every daemon has, and how they are loaded: flags > environment > file > defaults.

The settings of a daemon are one frozen class. `load_settings` builds it once, at the entry point, and it is
passed down. Building the class directly reads no file and no variable, so tests do not depend on the
environment.
"""

from __future__ import annotations

import dataclasses
import os
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, ClassVar, Generic, Literal, TypeVar

import typer
from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from nearsight.common.config.file import find_config, read_config
from nearsight.common.config.schema import Setting, check_key, flatten, nest, setting_keys
from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.endpoints import endpoint_here
from nearsight.common.rpc.security import ClientSecurity, ServerSecurity
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.settings import SettingsGroup, first_error

DEFAULT_ORIGIN = "default"
FLAG_ORIGIN = "command line"
_DESCRIPTIONS = "`nearsight config init described.toml` writes a file that describes every setting"

UserPath = Annotated[Path, AfterValidator(Path.expanduser)]
"""A path in which ``~`` is the home folder; a relative path is relative to the working directory."""


class SecuritySettings(SettingsGroup):
    """Key files. Secrets are paths, never values, so that printed settings reveal no secret."""

    secret_key_file: UserPath | None = None
    """This daemon's secret key, from `nearsight keys`. Required to listen beyond loopback."""
    allowed_clients: UserPath | None = None
    """Folder with the public key (*.key) of every client that may connect."""

    @model_validator(mode="after")
    def _no_clients_without_a_key(self) -> SecuritySettings:
        # Otherwise a daemon with a list of allowed clients would serve every client, unencrypted.
        if self.allowed_clients is not None and self.secret_key_file is None:
            raise ValueError("allowed_clients needs secret_key_file as well")
        return self

    def for_server(self) -> ServerSecurity | None:
        """The keys of the daemon's server; None without a folder of clients: loopback only, unencrypted.

        A secret key without this folder only identifies the daemon to the tiers that it calls.
        """
        if self.secret_key_file is None or self.allowed_clients is None:
            return None
        return ServerSecurity(self.secret_key_file, self.allowed_clients)

    def towards(
        self, public_key: str, *, setting: str, own_setting: str = "security.secret_key_file"
    ) -> ClientSecurity | None:
        """The keys with which this daemon calls a tier; None if that tier has no key.

        Raises
        ------
        ConfigurationError
            If the tier has a key, in ``setting``, but this daemon has none, in ``own_setting``.
        """
        if not public_key:
            return None
        if self.secret_key_file is None:
            raise ConfigurationError(
                f"{setting} is set, but this daemon has no key of its own",
                advice=f"make one with `nearsight keys generate NAME` and set {own_setting}",
            )
        return ClientSecurity(self.secret_key_file, public_key)


@dataclasses.dataclass(frozen=True, slots=True)
class NextTier:
    """A daemon that another daemon calls."""

    daemon: str
    """"cloud" or "edge"."""
    endpoint: str
    public_key: str = ""
    """Its public key, or a file that holds it; empty if it uses no encryption."""


class DaemonSettings(BaseSettings):
    """Settings that all daemons have in common; each daemon adds its own."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lowest level that is logged."""
    log_format: Literal["console", "json"] = "console"
    """Lines for people or JSON lines for a collector, both on standard error."""
    metrics_listen: str = "127.0.0.1:0"
    """Address of the Prometheus endpoint, unencrypted: keep it on loopback or a trusted net. Empty: off."""
    stop_grace_s: float = Field(default=5.0, ge=0, le=600)
    """Time to finish requests in progress after SIGTERM or SIGINT [s]."""

    changed_first: ClassVar[Mapping[str, tuple[object, str]]] = MappingProxyType({})
    """Settings for `nearsight config init --short`: the keys that users change first, each with a value with
    which the daemon starts and a comment of one line."""

    read_by_commands: ClassVar[bool] = False
    """Whether commands read this table as well. If so, only the settings of its server show that the daemon
    runs."""

    def endpoint_here(self) -> str:
        """The endpoint of the daemon for this machine; empty if it is unknown."""
        return ""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Accept arguments only: `load_settings` merges the other sources, so that it can record origins."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


class RpcDaemonSettings(DaemonSettings):
    """Settings of the daemons that serve calls: cloud, edge and device."""

    server: ServerSettings = ServerSettings()
    """Where and how this daemon serves requests."""
    security: SecuritySettings = SecuritySettings()
    """Keys of this daemon and of its clients."""

    def endpoint_here(self) -> str:
        """The endpoint of the daemon for this machine; empty if it is unknown."""
        return endpoint_here(self.server.listen)

    def next_tiers(self) -> tuple[NextTier, ...]:
        """The daemons that this one calls; empty unless a subclass overrides it."""
        return ()


S = TypeVar("S", bound=DaemonSettings)


def import_settings_classes(targets: Mapping[str, str]) -> dict[str, type[DaemonSettings]]:
    """The settings class of each daemon, from its ``module:attribute``."""
    return {section: pkgutil.resolve_name(target) for section, target in targets.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """The settings in force, and the origin of each."""

    settings: S
    """Validated settings."""
    origins: Mapping[str, str]
    """Dotted key → ``default``, ``nearsight.toml:7``, ``NEARSIGHT_EDGE__LOG_LEVEL`` or ``command line``."""


def load_settings(
    settings_class: type[S],
    section: str,
    config: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    environment: bool = True,
) -> Loaded[S]:
    """Merge defaults, file, environment and flags; later sources take precedence.

    Parameters
    ----------
    settings_class : type
        The daemon's settings.
    section : str
        Table of the file and part of the names in the environment: ``NEARSIGHT_CLOUD__SERVER__LISTEN``.
    config : Path, optional
        Default: ``./nearsight.toml``, then the file in the user's configuration folder, if there is one.
    overrides : Mapping, optional
        Dotted key → value from flags. ``None`` means that the flag was not given; text is parsed like an
        environment variable.
    environment : bool
        Whether to read the environment.

    Raises
    ------
    ConfigurationError
        One line with the origin, the key and the error.
    """
    keys = setting_keys(settings_class)
    merged: dict[str, Setting] = {}
    from_environment = _from_environment(section) if environment else ()
    for key, setting in (*_from_file(section, config, keys), *from_environment, *_flags(overrides)):
        check_key(keys, key, setting.origin)
        merged[key] = _parsed(settings_class, keys, key, setting) if setting.is_text else setting
    origins = {key: merged[key].origin if key in merged else DEFAULT_ORIGIN for key in keys}
    values = _group_defaults(settings_class, keys, merged) | {key: s.value for key, s in merged.items()}
    try:
        settings = settings_class.model_validate(nest(values))
    except ValidationError as error:
        raise _one_line(error, section, origins) from error
    for key, setting in merged.items():
        in_force = reduce(getattr, key.split("."), settings)
        if isinstance(setting.value, bool) and not isinstance(in_force, bool):  # pydantic makes it 0 or 1
            raise ConfigurationError(
                f"{setting.origin}: {key}: input should be a number (given: {setting.value!r})",
                advice=_DESCRIPTIONS,
            )
    return Loaded(settings, origins)


def _group_defaults(
    settings_class: type[DaemonSettings], keys: Collection[str], given: Collection[str]
) -> dict[str, object]:
    """The defaults of all groups with given keys; a daemon may set its own, such as ``server.listen``."""
    defaults: dict[str, object] = {}
    for name in {key.partition(".")[0] for key in given if "." in key}:
        group = settings_class.model_fields[name].get_default(call_default_factory=True, validated_data={})
        if isinstance(group, BaseModel):
            defaults.update(flatten(keys, {name: group.model_dump()}))
        elif dataclasses.is_dataclass(group) and not isinstance(group, type):
            defaults.update(flatten(keys, {name: dataclasses.asdict(group)}))
    return defaults


def _from_file(section: str, config: Path | None, keys: Collection[str]) -> Iterator[tuple[str, Setting]]:
    path = find_config(config, Path(typer.get_app_dir("nearsight")))
    if path is not None:
        file = read_config(path)
        for key, value in flatten(keys, file.tables.get(section, {})):
            yield key, Setting(value, file.origin(f"{section}.{key}"))


def _from_environment(section: str) -> Iterator[tuple[str, Setting]]:
    """``NEARSIGHT_CLOUD__SERVER__LISTEN=x`` as ``server.listen``; no other function reads the environment."""
    prefix = f"NEARSIGHT_{section.upper()}__"
    for name, value in os.environ.items():
        if name.upper().startswith(prefix):
            yield name[len(prefix) :].lower().replace("__", "."), Setting(value, name, is_text=True)


def _flags(overrides: Mapping[str, object] | None) -> Iterator[tuple[str, Setting]]:
    for key, value in (overrides or {}).items():
        if value is not None:
            yield key, Setting(value, FLAG_ORIGIN, is_text=isinstance(value, str))


def _parsed(settings_class: type[DaemonSettings], keys: Collection[str], key: str, text: Setting) -> Setting:
    """A setting given as text: lists and mappings are parsed as JSON, other values are validated as text."""
    source = EnvSettingsSource(settings_class, case_sensitive=True, env_prefix="", env_nested_delimiter=".")
    source.env_vars = {key: str(text.value)}
    try:
        return Setting(dict(flatten(keys, source())).get(key, text.value), text.origin)
    except SettingsError as error:
        raise ConfigurationError(
            f"{text.origin}: {key}: {text.value!r} is not JSON",
            advice='lists and mappings are written as ["a", "b"] and {"a": 1}',
        ) from error


def _one_line(error: ValidationError, section: str, origins: Mapping[str, str]) -> ConfigurationError:
    """The first validation error with the origin of the value, instead of pydantic's block of text."""
    path, text = first_error(error)
    key = next((joined for end in range(len(path), 0, -1) if (joined := ".".join(path[:end])) in origins), "")
    origin = origins.get(key, section)
    return ConfigurationError(f"{origin}: {key or '.'.join(path) or section}: {text}", advice=_DESCRIPTIONS)
