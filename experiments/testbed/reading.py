"""Reads an inventory file, and checks everything that can be checked without access to a node.

A mistake is therefore found within seconds. The error message is one line that gives its location.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError

from nearsight.common.errors import ConfigurationError, NotFound
from nearsight.experiments.testbed.inventory import DeviceSpec, Inventory, LinkSpec, NodeSpec, ReplaySpec

_SEE_DOCS = "see docs/testbed.md"
_UNKNOWN_KEY = "extra_forbidden"
_OF_GENERATED_VISITS = ("sections", "exhibits", "population")
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
        if mistake := next(_mistakes(inventory), ""):
            raise ConfigurationError(mistake, advice=_SEE_DOCS)
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


def _mistakes(inventory: Inventory) -> Iterator[str]:
    """Descriptions of mistakes. Only the first is valid, because a check relies on those before it."""
    for name, node in inventory.nodes.items():
        yield from _in_node(f"nodes.{name}", node)
    yield from _in_tables(inventory)
    yield from _in_links(inventory)
    hosts = Counter(host.name for host in inventory.hosts())  # raises for unknown profiles
    name, count = hosts.most_common(1)[0]
    if count > 1:
        yield f"nodes: {count} hosts have the name {name!r}; give one of their nodes another name"
    if inventory.replay is not None:
        yield from _in_replay(inventory, inventory.replay)


def _in_node(where: str, node: NodeSpec) -> Iterator[str]:
    reached = node.address or node.host
    if ":" in reached:
        problem = f"daemons cannot be reached at IPv6 addresses such as {reached!r}"
        yield f"{where}: {problem}: use an IPv4 address or a name"
    if node.kind == "namespace" and node.address:
        yield f"{where}: address is not for nodes of kind 'namespace', which have a network of their own"
    if node.kind == "ssh" and not node.host:
        yield f"{where}: an SSH node needs a host"
    if node.kind == "ssh" and node.count > 1:
        yield f"{where}: an SSH node is one host"
    if node.kind != "ssh" and (given := node.model_fields_set & _SSH_ALONE):
        yield f"{where}: {', '.join(sorted(given))} is for nodes of kind 'ssh' alone"


def _in_tables(inventory: Inventory) -> Iterator[str]:
    for where, spec in inventory.tables().items():
        if spec.node not in inventory.nodes:
            yield f"{where}.node: there is no node {spec.node!r}"
        if not isinstance(spec, DeviceSpec):
            if inventory.nodes[spec.node].count > 1:
                yield f"{where}.node: {spec.node!r} is several hosts; a server needs one"
        elif spec.edge and spec.edge not in inventory.edges:
            yield f"{where}.edge: there is no edge {spec.edge!r}"
        elif not spec.edge and len(inventory.edges) > 1:
            yield f"{where}: name the edge that it asks first"
    carriers = [device.node for device in inventory.devices.values()]
    if len(set(carriers)) < len(carriers):
        yield "devices: a host has one device; give each table its own node"


def _in_links(inventory: Inventory) -> Iterator[str]:
    used = list(inventory.pairs())
    for source, target in used:
        for name in (source, target):
            if name not in inventory.nodes:
                yield f"links: there is no node {name!r}"
        yield from _in_pair(inventory, source, target)
    seen = set()
    for link in inventory.links:
        pair = (link.source, link.target)
        if pair not in used:
            yield f"links: no daemon on {link.source!r} calls one on {link.target!r}"
        if pair in seen:
            yield f"links: {link.source!r} to {link.target!r} is defined twice"
        seen.add(pair)
        if link.via:
            yield from _in_via(inventory, link)
    for way in (*inventory.links, *inventory.networks.values()):
        _ = way.shape  # raises for invalid numbers
    if inventory.networks and all(link.target != inventory.cloud.node for link in inventory.links):
        yield "networks: there is no link to the cloud to which they apply"


def _in_pair(inventory: Inventory, source: str, target: str) -> Iterator[str]:
    a, b = inventory.nodes[source], inventory.nodes[target]
    if a.kind != b.kind and "namespace" in {a.kind, b.kind}:
        yield f"{source!r} cannot reach {target!r}: nodes in namespaces reach only each other"
    if a.kind == "ssh" and b.kind != "ssh" and not b.address:
        yield f"nodes.{target}: give the address at which {source!r} reaches this machine"


def _in_via(inventory: Inventory, link: LinkSpec) -> Iterator[str]:
    where = f"links: {link.source!r} to {link.target!r} via {link.via!r}"
    further = inventory.link(link.via, link.target)
    if link.via == link.source or further is None:
        yield f"{where}: there is no link from {link.via!r} to {link.target!r}"
    elif further.via:
        yield f"{where}: that link goes via another node itself"
    elif inventory.nodes[link.via].count > 1:
        yield f"{where}: {link.via!r} is several hosts"


def _in_replay(inventory: Inventory, replay: ReplaySpec) -> Iterator[str]:
    sweep = inventory.sweep
    if replay.trace is not None:
        given = [f"replay.{name}" for name in _OF_GENERATED_VISITS if name in replay.model_fields_set]
        given += ["sweep.sections"] * bool(sweep.sections)
        if given:
            yield f"{', '.join(given)}: only generated visits have it; leave out replay.trace"
    hosts = sum(inventory.nodes[device.node].count for device in inventory.devices.values())
    most = max((replay.visitors, *sweep.visitors))
    if most > hosts:
        yield f"{most} visitors need as many devices, but there are {hosts}"
    if (replay.classes or sweep.classes) and "database" not in inventory.cloud.files:
        yield "classes: to leave out objects, the cloud's database must be a file: cloud.files.database"
