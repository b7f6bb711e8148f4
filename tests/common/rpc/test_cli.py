import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.cli import app
from nearsight.common.rpc.security import read_public_key


def run(*args: str) -> str:
    result = CliRunner().invoke(app, list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_keys_are_generated_allowed_listed_and_forbidden(tmp_path: Path) -> None:
    keys, allowed = str(tmp_path / "keys"), str(tmp_path / "allowed")
    said = run("generate", "edge", "--dir", keys)
    assert "allowed_clients" in said
    assert "nearsight keys allow" in said
    secret = tmp_path / "keys/edge.key_secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_text().split('"')[3] not in said
    run("generate", "phone", "--dir", keys)
    assert "phone may connect" in run("allow", f"{keys}/phone.key", "--dir", allowed)
    public = read_public_key(tmp_path / "keys/phone.key")
    assert public in run("list", "--dir", allowed)
    assert "reader" in run("list", "--dir", allowed)
    assert "reader" not in run("list", "--dir", keys)  # rights are those of clients
    assert json.loads(run("list", "--dir", keys, "--json"))[1] == {
        "name": "phone",
        "public_key": public,
        "secret_here": True,
        "role": "reader",
        "catalogues": [],
        "writes": [],
    }
    said = run("allow", f"{keys}/phone.key", "--dir", allowed, "--role", "writer", "--catalogue", "museum")
    assert "phone is a writer of museum" in said
    (entry,) = json.loads(run("list", "--dir", allowed, "--json"))
    assert (entry["role"], entry["catalogues"]) == ("writer", ["museum"])
    said = run("allow", f"{keys}/phone.key", "--dir", allowed, "--writes", "museum")
    assert "phone is a writer of all catalogues, and may change museum only" in said
    assert "writer (museum)" in run("list", "--dir", allowed)
    run("forbid", "phone", "--dir", allowed)
    assert "no keys in" in CliRunner().invoke(app, ["list", "--dir", allowed]).stderr


def test_a_key_is_replaced_only_with_force(tmp_path: Path) -> None:
    run("generate", "edge", "--dir", str(tmp_path))
    before = read_public_key(tmp_path / "edge.key")
    with pytest.raises(ConfigurationError, match=r"exists.*--force"):
        run("generate", "edge", "--dir", str(tmp_path))
    assert read_public_key(tmp_path / "edge.key") == before
    run("generate", "edge", "--dir", str(tmp_path), "--force")
    assert read_public_key(tmp_path / "edge.key") != before


def test_listing_a_missing_folder_advises_how_to_make_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nearsight keys generate"):
        run("list", "--dir", str(tmp_path / "none"))
