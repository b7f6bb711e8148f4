"""The directions of imports, held by the code itself: tiers meet on the wire, never in Python."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = {
    "protos": {"protos"},
    "common": {"common", "protos"},
    "cloud": {"cloud", "common", "protos"},
    "edge": {"edge", "common", "protos"},
    "device": {"device", "common", "protos"},
    "experiments": {"experiments", "device", "edge", "cloud", "common", "protos"},
}


def imported_modules(path: Path) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import through the nearsight namespace"
            module = node.module or ""
            modules.add(module)
            modules.update(f"{module}.{alias.name}" for alias in node.names)
    return modules


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_a_layer_imports_only_layers_that_it_may_see(layer: str) -> None:
    files = list((ROOT / layer).rglob("*.py"))
    assert files, f"no code found for {layer}"
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files
        for module in sorted(imported_modules(path))
        if module.startswith("nearsight.") and module.split(".")[1] in LAYERS.keys() - LAYERS[layer]
    ]
    assert not wrong, "\n".join(wrong)


def test_every_layer_is_linked_into_the_namespace() -> None:
    for layer in LAYERS:
        link = ROOT / "src/nearsight" / layer
        assert link.is_symlink()
        assert link.resolve() == ROOT / layer
