"""Generate the Python code and type stubs of ``*.proto``, or check that the committed files are in sync.

Run from anywhere: ``python protos/generate.py [--check]``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"


def generate(out: Path) -> None:
    """Write ``nearsight/protos/*_pb2.py`` and ``.pyi`` below ``out``.

    The files are compiled under their import path, so that one generated module imports another through
    the ``nearsight`` namespace.
    """
    sources = [f"nearsight/protos/{path.name}" for path in sorted(PROTOS.glob("*.proto"))]
    well_known = resources.files("grpc_tools") / "_proto"
    paths = [f"--proto_path={ROOT / 'src'}", f"--proto_path={well_known}"]
    options = [*paths, f"--python_out={out}", f"--pyi_out={out}"]
    if protoc.main(["protoc", *options, *sources]) != 0:
        sys.exit("protoc failed")


def stale(fresh: Path) -> list[str]:
    """Names of committed files that differ from the freshly generated ones, are missing or left over."""
    new = {path.name: path.read_text() for path in (fresh / "nearsight/protos").iterdir()}
    old = {path.name: path.read_text() for path in PROTOS.glob("*_pb2.py*")}
    return sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the code is stale")
    if not parser.parse_args().check:
        generate(ROOT / "src")
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        names = stale(Path(folder))
    if names:
        sys.exit(f"stale generated code: {', '.join(names)}; run `make protos` and commit the result")


if __name__ == "__main__":
    main()
