"""The imports between our modules, read from the code; includes imports within functions."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("protos", "common", "cloud", "edge", "device", "experiments")


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Module, such as ``common.rpc.client`` → the modules of ours that it imports, anywhere in its code."""
    modules = {_name(path): path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")}
    return {
        name: frozenset(_target(found, modules) for found in _imported(path)) - {name}
        for name, path in modules.items()
    }


def reached(starts: set[str]) -> set[str]:
    """These modules and all modules that they import, directly or indirectly."""
    found, new = set[str](), starts
    while new:
        found |= new
        new = {target for module in new for target in imports()[module]} - found
    return found


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in _statements(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import through the nearsight namespace"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    ours = (name.removeprefix("nearsight.") for name in names if name.startswith("nearsight."))
    return {name for name in ours if name.split(".")[0] in LAYERS}


def _statements(parent: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node; other than with `ast.walk`, their expressions are not visited."""
    for node in ast.iter_child_nodes(parent):
        if not isinstance(node, ast.expr):
            yield node
            yield from _statements(node)


def _target(name: str, modules: Mapping[str, Path]) -> str:
    """The module of an imported name: ``common.errors`` for ``common.errors.NotFound``."""
    return name if name in modules else name.rpartition(".")[0]
