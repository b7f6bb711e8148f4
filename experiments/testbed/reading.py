"""Reads an inventory file, and checks everything that can be checked without access to a node.

A mistake is therefore found within seconds. The error message is one line that gives its location.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError

from nearsight.common.errors import ConfigurationError, NotFound
from nearsight.experiments.testbed.inventory import DeviceSpec, Inventory, LinkSpec, NodeSpec, ReplaySpec

_SEE_DOCS = "see docs/testbed.md"
_UNKNOWN_KEY = "extra_forbidden"
_SSH_ALONE = {"host", "user", "port", "key", "options", "folder", "python", "system_packages", "pip"}


def read_inventory(path: Path) -> Inventory:
    """Read and check an inventory. Relative paths in it are relative to its own folder.

    Raises
    ------
    NotFound
        If there is no such file.
    ConfigurationError
        If the inventory is wrong; one line with problem and location.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFound(
            f"cannot read inventory {path}: {error.strerror}", advice="docs/testbed.md shows one"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    try:
        inventory = Inventory.model_validate(document, context={"folder": path.resolve().parent})
        _check(inventory)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {_first(error)}", advice=_SEE_DOCS) from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error.message}", advice=error.advice) from error
    named = [one for spec in inventory.tables().values() for one in spec.files.items()]
    named += [(f"nodes.{name}.key", node.key) for name, node in inventory.nodes.items() if node.key]
    named += [("wheel", inventory.wheel)] if inventory.wheel else []
    for key, file in named:
        if not file.is_file():
            raise NotFound(f"there is no file {file}", advice=f"the inventory names it for {key}")
    return inventory


def _first(error: ValidationError) -> str:
    # A misspelt key is reported as unknown, and as missing under its right name: the former is clearer.
    found = sorted(error.errors(include_url=False), key=lambda one: one["type"] != _UNKNOWN_KEY)
    first, *_ = found
    *above, last = [str(part) for part in first["loc"]] or [""]
    if first["type"] != _UNKNOWN_KEY:
        return f"{'.'.join([*above, last])}: {first['msg'].removeprefix('Value error, ')}"
    similar = get_close_matches(last, _keys_at(first["loc"][:-1]), n=1)
    meant = f", perhaps {similar[0]!r} was meant" if similar else ""
    return f"{'.'.join(above) or 'at the top'}: there is no key {last!r}{meant}"


def _keys_at(place: Sequence[int | str]) -> list[str]:
    """Keys of a table, such as that at ("nodes", "box")."""
    model: type[BaseModel] = Inventory
    for part in place:
        field = model.model_fields.get(str(part))
        inner = None if field is None else _model_in(field.annotation)
        model = inner or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The table in an annotation such as ``Mapping[Name, NodeSpec]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one))), None)


def _check(inventory: Inventory) -> None:
    for name, spec in inventory.nodes.items():
        _check_node(name, spec)
    _check_tables(inventory)
    _check_links(inventory)
    _check_hosts(inventory)
    if inventory.replay is not None:
        _check_replay(inventory, inventory.replay)


def _check_hosts(inventory: Inventory) -> None:
    names = Counter(host.name for host in inventory.hosts())  # raises for unknown profiles
    name, count = names.most_common(1)[0]
    _require(count == 1, f"nodes: {count} hosts have the name {name!r}; give one of their nodes another name")


def _check_tables(inventory: Inventory) -> None:
    for where, spec in inventory.tables().items():
        _require(spec.node in inventory.nodes, f"{where}.node: there is no node {spec.node!r}")
        if isinstance(spec, DeviceSpec):
            unknown = spec.edge and spec.edge not in inventory.edges
            _require(not unknown, f"{where}.edge: there is no edge {spec.edge!r}")
            chosen = spec.edge or len(inventory.edges) < 2
            _require(bool(chosen), f"{where}: name the edge that it asks first")
        else:
            several = inventory.nodes[spec.node].count > 1
            _require(not several, f"{where}.node: {spec.node!r} is several hosts; a server needs one")
    carriers = [device.node for device in inventory.devices.values()]
    _require(
        len(set(carriers)) == len(carriers),
        "devices: a host has one device; give each table its own node",
    )


def _check_links(inventory: Inventory) -> None:
    used = list(inventory.pairs())
    for source, target in used:
        _require(source in inventory.nodes, f"links: there is no node {source!r}")
        _require(target in inventory.nodes, f"links: there is no node {target!r}")
        _check_pair(inventory, source, target)
    seen = set()
    for link in inventory.links:
        pair = (link.source, link.target)
        _require(pair in used, f"links: no daemon on {link.source!r} calls one on {link.target!r}")
        _require(pair not in seen, f"links: {link.source!r} to {link.target!r} is defined twice")
        seen.add(pair)
        if link.via:
            _check_via(inventory, link)
    for way in (*inventory.links, *inventory.networks.values()):
        _ = way.shape  # raises for invalid numbers
    to_cloud = any(link.target == inventory.cloud.node for link in inventory.links)
    _require(
        to_cloud or not inventory.networks, "networks: there is no link to the cloud to which they apply"
    )


def _check_replay(inventory: Inventory, replay: ReplaySpec) -> None:
    sweep = inventory.sweep
    if replay.trace is not None:
        given = [
            f"replay.{name}"
            for name in ("sections", "exhibits", "population")
            if name in replay.model_fields_set
        ]
        given += ["sweep.sections"] * bool(sweep.sections)
        _require(not given, f"{', '.join(given)}: only generated visits have it; leave out replay.trace")
    hosts = sum(inventory.nodes[device.node].count for device in inventory.devices.values())
    most = max((replay.visitors, *sweep.visitors))
    _require(most <= hosts, f"{most} visitors need as many devices, but there are {hosts}")
    known = replay.classes or sweep.classes
    _require(
        not known or "database" in inventory.cloud.files,
        "classes: to leave out objects, the cloud's database must be a file: cloud.files.database",
    )


def _check_via(inventory: Inventory, link: LinkSpec) -> None:
    where = f"links: {link.source!r} to {link.target!r} via {link.via!r}"
    further = inventory.link(link.via, link.target)
    if link.via == link.source or further is None:
        raise ConfigurationError(
            f"{where}: there is no link from {link.via!r} to {link.target!r}", advice=_SEE_DOCS
        )
    _require(not further.via, f"{where}: that link goes via another node itself")
    _require(inventory.nodes[link.via].count == 1, f"{where}: {link.via!r} is several hosts")


def _check_node(name: str, spec: NodeSpec) -> None:
    reached = spec.address or spec.host
    problem = f"nodes.{name}: daemons cannot be reached at IPv6 addresses such as {reached!r}"
    _require(":" not in reached, f"{problem}: use an IPv4 address or a name")
    if spec.kind == "ssh":
        _require(bool(spec.host), f"nodes.{name}: an SSH node needs a host")
        _require(spec.count == 1, f"nodes.{name}: an SSH node is one host")
        return
    given = spec.model_fields_set & _SSH_ALONE
    _require(not given, f"nodes.{name}: {', '.join(sorted(given))} is for nodes of kind 'ssh' alone")


def _check_pair(inventory: Inventory, source: str, target: str) -> None:
    kinds = {inventory.nodes[source].kind, inventory.nodes[target].kind}
    _require(
        len(kinds) == 1 or "namespace" not in kinds,
        f"{source!r} cannot reach {target!r}: nodes in namespaces reach only each other",
    )
    if source != target and inventory.nodes[source].kind == "ssh":
        spec = inventory.nodes[target]
        _require(
            spec.kind == "ssh" or bool(spec.address),
            f"nodes.{target}: give the address at which {source!r} reaches this machine",
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigurationError(message, advice=_SEE_DOCS)
