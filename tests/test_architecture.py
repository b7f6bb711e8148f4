"""The permitted directions of imports; tiers communicate only by messages."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from support.import_graph import ROOT, imports, reached

LAYERS = {
    "protos": {"protos"},
    "common": {"common", "protos"},
    "cloud": {"cloud", "common", "protos"},
    "edge": {"edge", "common", "protos"},
    "device": {"device", "common", "protos"},
    "experiments": {"experiments", "device", "edge", "cloud", "common", "protos"},
}
PACKAGES = (
    {"framework"},
    {"datasets"},
    {"traces"},
    {"museum"},
    {"profiling"},
    {"links"},
    {"model_serving"},
    {"model_zoo"},
    {"rig"},
    {"twin", "testbed"},
    {"studies"},
    {"report"},
    {"bench"},
    {"demo"},
    {"cli"},
)
"""Packages of experiments; each may import those before it, and the tiers."""
TIERS = ("cloud", "edge", "device")
COMMON_ROOT = {"errors", "clock", "files", "folder_lock", "logging", "metrics", "settings", "text"}


def cycle(graph: Mapping[str, frozenset[str]]) -> list[str]:
    """The nodes of one cycle; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def by_group(group: Callable[[str], str | None]) -> dict[str, frozenset[str]]:
    """The graph of imports between groups of modules; modules whose group is None are left out."""
    graph: dict[str, set[str]] = defaultdict(set)
    for module, targets in imports().items():
        if (own := group(module)) is not None:
            graph[own].update(other for name in targets if (other := group(name)) not in {own, None})
    return {name: frozenset(targets) for name, targets in graph.items()}


def subject(module: str) -> str | None:
    """``common.rpc`` for a module in it; ``common`` for those of the root."""
    layer, _, rest = module.partition(".")
    name = rest.partition(".")[0]
    if layer != "common":
        return None
    return "common" if name in {"", *COMMON_ROOT} else f"common.{name}"


def experiments_package(module: str) -> str | None:
    """``rig`` for ``experiments.rig.rows``."""
    parts = module.split(".")
    return parts[1] if parts[0] == "experiments" and len(parts) > 1 else None


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_a_layer_imports_only_permitted_layers(layer: str) -> None:
    graph = by_group(lambda module: module.split(".")[0])
    assert layer in graph
    assert not graph[layer] - LAYERS[layer]


def test_the_root_of_common_imports_no_subject() -> None:
    assert {path.stem for path in (ROOT / "common").glob("*.py")} == {"__init__", *COMMON_ROOT}
    assert not {
        (module, target)
        for module in (f"common.{name}" for name in COMMON_ROOT)
        for target in imports()[module]
        if target.startswith("common.") and target.removeprefix("common.") not in COMMON_ROOT
    }


def test_subjects_of_common_import_each_other_in_one_direction() -> None:
    assert cycle(by_group(subject)) == []


def test_packages_of_experiments_import_only_earlier_packages() -> None:
    place = {name: number for number, names in enumerate(PACKAGES) for name in names}
    graph = by_group(experiments_package)
    assert graph.keys() == place.keys()
    later = {(one, other) for one, others in graph.items() for other in others if place[other] >= place[one]}
    assert not later


def test_packages_of_peers_import_each_other_in_one_direction() -> None:
    def peers_package(module: str) -> str | None:
        parts = module.split(".")
        return parts[2] if parts[:2] == ["device", "peers"] and len(parts) > 3 else None

    graph = by_group(peers_package)
    assert (graph["presence"], graph["routing"]) == (frozenset(), {"presence"})
    assert graph["store"] == {"presence", "routing"}


def test_common_contains_only_modules_of_several_tiers() -> None:
    modules = {name for name in imports() if name.startswith("common.")}
    of_commands = reached({name for name in modules if name.endswith(".cli")})
    of_tiers = [reached({m for m in imports() if m.split(".")[0] == tier}) for tier in TIERS]
    packages = {name.rpartition(".")[0] for name in modules}
    wanted = {name for name in modules if sum(name in tier for tier in of_tiers) > 1}
    for_applications = {name for name in modules if name.startswith("common.result_cache.")}
    for_simulations = {name for name in modules if name.startswith("common.model_cache.")}
    of_reuse = tuple(
        f"common.inference.{name}"
        for name in ("graph_", "map_changes", "region_reuse", "reuse_cost", "segment")
    )
    for_networks = {n for n in modules if n.startswith(("common.video.", "common.folder_lock", *of_reuse))}
    assert (
        modules - packages - of_commands - for_applications - for_simulations - for_networks - wanted == set()
    )


def test_module_imports_have_no_cycle() -> None:
    assert cycle(imports()) == []


def test_every_layer_is_linked_into_the_namespace() -> None:
    for layer in LAYERS:
        link = ROOT / "src/nearsight" / layer
        assert link.is_symlink()
        assert link.resolve() == ROOT / layer
