"""Tokens: the file, the command, and their use by a gateway, also during streams."""

import errno
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from nearsight.__main__ import main
from nearsight.common.clock import ManualClock
from nearsight.common.errors import ConfigurationError, Overloaded
from nearsight.edge.gateway.access import Access
from nearsight.edge.gateway.settings import LimitSettings
from nearsight.edge.gateway.tokens import Token, TokenFile, add_token, digest_of, read_tokens, revoke_token
from support.gateway import CATALOGUE, OTHER, ScriptedEdge, running_gateway

IMAGE = b"an image"
NOBODY = 65534


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_the_file_contains_no_token_and_only_its_owner_may_read_it(file: Path) -> None:
    secret = add_token(file, "visitors", [CATALOGUE], 20.0)
    assert secret not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (token,) = read_tokens(file)
    assert (token.name, token.catalogues, token.rate_per_s) == ("visitors", (CATALOGUE,), 20.0)


def test_root_changes_the_file_of_a_gateway_that_runs_as_another_user(file: Path) -> None:
    add_token(file, "visitors")
    if os.geteuid() == 0:
        os.chown(file, NOBODY, NOBODY)
    before = file.stat()
    revoke_token(file, "visitors")
    after = file.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_a_token_is_on_disk_when_it_is_shown(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    add_token(file, "visitors")
    assert file.stat().st_ino in synced, "a power cut would lose it"


def test_a_name_is_given_once_and_revoked_once(file: Path) -> None:
    add_token(file, "visitors")
    with pytest.raises(ConfigurationError, match="already"):
        add_token(file, "visitors")
    revoke_token(file, "visitors")
    with pytest.raises(ConfigurationError, match="no token"):
        revoke_token(file, "visitors")


def test_all_tokens_of_a_name_are_revoked(file: Path) -> None:
    tokens = [{"name": name, "sha256": str(number)} for number, name in enumerate(("a", "b", "a"))]
    file.write_text(json.dumps(tokens))
    revoke_token(file, "a")
    assert [token.name for token in read_tokens(file)] == ["b"]


@pytest.mark.parametrize("rate_per_s", [0.0, float("inf"), float("nan")])
def test_an_impossible_rate_is_refused(file: Path, rate_per_s: float) -> None:
    with pytest.raises(ConfigurationError, match="rate of"):
        add_token(file, "visitors", rate_per_s=rate_per_s)
    with pytest.raises(ConfigurationError, match="rate_per_s"):
        LimitSettings(rate_per_s=rate_per_s)
    assert read_tokens(file) == ()


MISSPELT = json.dumps([{"name": "visitors", "sha256": digest_of("x"), "catalogue": ["museum"]}])
RATE = '[{{"name": "visitors", "sha256": "x", "rate_per_s": {}}}]'


@pytest.mark.parametrize(
    "content",
    ["", "{}", '[{"name": "x"}]', "\x00", MISSPELT, *map(RATE.format, ("0", "-1", "NaN", "Infinity"))],
)
def test_a_damaged_file_is_a_startup_error_and_is_ignored_later(file: Path, content: str) -> None:
    add_token(file, "visitors")
    tokens = TokenFile(file)
    file.write_text(content)
    with pytest.raises(ConfigurationError, match="not a token file"):
        TokenFile(file)
    with pytest.raises(ConfigurationError):
        tokens.refresh()
    assert [token.name for token in tokens.by_digest.values()] == ["visitors"]
    file.unlink()
    tokens.refresh()
    assert not tokens.by_digest


def test_a_path_that_leads_through_a_file_is_a_startup_error(file: Path) -> None:
    file.touch()
    with pytest.raises(ConfigurationError, match="cannot read the tokens"):
        TokenFile(file / "tokens.json")


def test_a_revocation_whose_read_failed_is_loaded_later_and_the_failure_is_logged_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_token(file, "visitors")
    tokens = TokenFile(file)
    access = Access(tokens, (), LimitSettings(), ManualClock())
    revoke_token(file, "visitors")
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(Path, "read_bytes", Mock(side_effect=OSError(errno.EMFILE, "too many open files")))
        for _ in range(3):
            access.refresh()
    (line,) = logs
    assert line["reason"].startswith(f"cannot read the tokens in {file}: too many open files; ")
    assert len(tokens.by_digest) == 1
    access.refresh()
    assert not tokens.by_digest


def test_concurrent_changes_of_tokens_are_all_stored(file: Path) -> None:
    add_token(file, "former")
    with ThreadPoolExecutor(9) as pool:
        revoked = pool.submit(revoke_token, file, "former")
        secrets = [*pool.map(lambda number: add_token(file, f"phone-{number}"), range(8))]
        revoked.result()
    assert {token.sha256 for token in read_tokens(file)} == {digest_of(secret) for secret in secrets}


def test_the_command_adds_lists_and_revokes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["gateway", "tokens"]
    assert main([*command, "add", "visitors", "--catalogue", CATALOGUE, "--page", "https://a:1/"]) == 0
    secret, link = capsys.readouterr().out.splitlines()
    assert link == f"open https://a:1/?catalogue={CATALOGUE}#token={secret}"
    for page in ("", "a:1"):
        assert main([*command, "add", "phone", "--page", page]) == 2
        assert f"--page '{page}' is not the address of a page" in capsys.readouterr().err
    assert main([*command, "list", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["visitors"]
    assert main(["gateway", "--tokens", "other.json", "tokens", "revoke", "visitors"]) == 2
    assert "--tokens before 'tokens'" in capsys.readouterr().err
    assert main([*command, "revoke", "visitors"]) == 0
    assert read_tokens(tmp_path / "gateway-tokens.json") == ()
    assert main([*command, "revoke", "visitors"]) == 5
    assert "there is no token called" in capsys.readouterr().err


def test_with_tokens_every_request_needs_one(file: Path, edge: ScriptedEdge) -> None:
    secret = add_token(file, "visitors", [CATALOGUE])
    with running_gateway(edge.endpoint, tokens=file) as browser:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {secret}"}):
            refused = browser.recognize(IMAGE, **headers)
            assert (refused.status, refused.error) == (401, "UNAUTHENTICATED")
            assert browser.get("/v1/catalogues", **headers).status == 401
        with browser.stream(token="wrong") as stream:
            assert stream.close_code() == 1008
        assert edge.recognition.requests == []
        own = {"authorization": f"Bearer {secret}"}
        assert browser.recognize(IMAGE, **own).status == 200
        assert browser.get("/v1/catalogues", **own).json == {"catalogues": [{"name": CATALOGUE}]}
        assert edge.recognition.contexts[0].client_id == "gateway/visitors"
        assert browser.get("/readyz").status == browser.get("/").status == 200
        with browser.stream(token=secret) as stream:
            assert stream.read()["type"] == "ready"
            assert stream.connection.subprotocol == "nearsight.v1"
        refused = browser.recognize(IMAGE, f"/v1/catalogues/{OTHER}/recognize", **own)
        assert (refused.status, refused.error) == (403, "PERMISSION_DENIED")
        with browser.stream(f"/v1/catalogues/{OTHER}/stream", token=secret) as stream:
            assert stream.close_code() == 1008


def test_revoking_a_token_ends_only_its_streams(file: Path, edge: ScriptedEdge) -> None:
    kept, revoked = add_token(file, "kept"), add_token(file, "revoked")
    with (
        running_gateway(edge.endpoint, tokens=file) as browser,
        browser.stream(token=kept) as staying,
        browser.stream(token=revoked) as leaving,
    ):
        for stream in (staying, leaving):
            stream.read()
            stream.send(1, IMAGE)
            assert stream.read()["type"] == "answer"
        added = {"authorization": f"Bearer {add_token(file, 'added')}"}
        revoke_token(file, "revoked")
        assert leaving.close_code() == 1008
        assert browser.recognize(IMAGE, authorization=f"Bearer {revoked}").status == 401
        staying.send(2, IMAGE)
        assert staying.read()["frame"] == 2
        assert browser.recognize(IMAGE, **added).status == 200


def test_beyond_this_machine_a_gateway_without_tokens_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gateway", "--listen", "0.0.0.0:0"]) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs tokens; run `nearsight gateway tokens add" in line


def test_for_an_edge_with_a_key_the_gateway_needs_one_in_a_setting_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gateway", "--set", "listen=127.0.0.1:0", "--set", "edge_public_key=edge.key"]) == 5
    assert "edge_public_key is set" in (shown := capsys.readouterr().err)
    assert "and set secret_key_file" in shown


def test_a_gateway_whose_file_has_no_tokens_warns_that_no_client_has_access(
    tmp_path: Path,
) -> None:
    with capture_logs() as logs, running_gateway("tcp://127.0.0.1:1", tokens=tmp_path / "mistyped.json"):
        pass
    assert any("there are no tokens in the file" in line["event"] for line in logs)


def test_a_rate_allows_bursts_of_one_second_and_returns_the_retry_time() -> None:
    clock = ManualClock()
    access = Access(None, (), LimitSettings(rate_per_s=2.0), clock)
    visitor, other = Token("one", ""), Token("other", "")
    for _ in range(2):
        access.charge(visitor)
    with pytest.raises(Overloaded, match="2 images per second") as error:
        access.charge(visitor)
    assert "in 0.5 s" in error.value.advice
    access.charge(other)
    clock.advance(0.5)
    access.charge(visitor)
    with pytest.raises(Overloaded):
        access.charge(visitor)


def test_a_token_may_have_its_own_rate() -> None:
    access = Access(None, (), LimitSettings(rate_per_s=1.0), ManualClock())
    visitor = Token("fast", "0", (), 3.0)
    for _ in range(3):
        access.charge(visitor)
    with pytest.raises(Overloaded):
        access.charge(visitor)
