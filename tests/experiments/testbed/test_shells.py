"""Commands and files on this machine and over SSH with a real sshd, and the messages of errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pytest

from nearsight.common.errors import SetupError, Unavailable
from nearsight.experiments.testbed.inventory import Host, NodeSpec
from nearsight.experiments.testbed.shells import Shell, SshShell
from support.disks import small_disk
from support.sshd import Sshd


def test_a_command_that_does_not_end_is_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"sleep on this machine did not end within 0 s; .*busy"):
        Shell().run(["/bin/sleep", "60"], timeout_s=0.1)


def test_the_error_of_a_local_command_has_its_last_line() -> None:
    with pytest.raises(SetupError, match="sh: no room"):
        Shell().run(["sh", "-c", "echo first >&2; echo no room >&2; exit 3"])


def test_a_missing_command_is_an_error_with_its_name() -> None:
    with pytest.raises(SetupError, match="no-such-program cannot be run"):
        Shell().run(["no-such-program"])


def test_a_secret_is_never_readable_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").touch(0o600)
    modes = []

    def copy(_source: BinaryIO, target: BinaryIO) -> None:
        modes.append(os.fstat(target.fileno()).st_mode & 0o777)

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    Shell().put(tmp_path / "secret", str(tmp_path / "there"))
    assert modes == [0o600]


def shell(sshd: Sshd, **changes: object) -> closing[SshShell]:
    options = (f"UserKnownHostsFile={sshd.known_hosts}",)
    spec = NodeSpec(kind="ssh", host="127.0.0.1", port=sshd.port, key=sshd.key, options=options)
    host = Host(name="lab", node="lab", spec=spec.model_copy(update=changes), address="127.0.0.1")
    return closing(SshShell(host))


def another_key(sshd: Sshd, folder: Path, command: str = "") -> Path:
    """A further authorised key; ``command`` is executed instead of each command."""
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    with (sshd.folder / "authorized_keys").open("a") as allowed:
        allowed.write((f'command="{command}" ' if command else "") + key.with_suffix(".pub").read_text())
    return key


@pytest.mark.system
@pytest.mark.needs("sshd")
class TestOverSsh:
    def test_a_user_name_is_not_taken_as_an_option_of_ssh(self, sshd: Sshd, tmp_path: Path) -> None:
        proof = tmp_path / "proof"
        user = f"-oProxyCommand=touch {proof};"
        with shell(sshd, user=user) as lab, pytest.raises(Unavailable):
            lab.run(["true"])
        assert not proof.exists()

    def test_files_and_arguments_pass_unchanged(self, sshd: Sshd, tmp_path: Path) -> None:
        content = bytes(range(256)) * 4096
        (tmp_path / "sent").write_bytes(content)
        there = tmp_path / "a folder" / "it's; $HOME"
        with shell(sshd) as lab:
            lab.put(tmp_path / "sent", str(there))
            assert there.read_bytes() == content
            assert there.stat().st_mode & 0o077 == 0
            lab.get(str(there), tmp_path / "back" / "again")
            assert (tmp_path / "back" / "again").read_bytes() == content
            assert lab.run(["printf", "%s|", "a b", "$(id)", "'"]) == b"a b|$(id)|'|"

    def test_the_error_of_a_command_has_its_last_line(self, sshd: Sshd) -> None:
        with shell(sshd) as lab, pytest.raises(SetupError, match="lab: no room"):
            lab.run(["sh", "-c", "echo first >&2; echo no room >&2; exit 3"])

    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"port": 1}, "Connection refused; is sshd running there"),
            (
                {"options": ("UserKnownHostsFile=/dev/null",)},
                r"Host key verification failed; connect once by hand with `ssh -p \d+ -i \S+ -o UserKnown",
            ),
            ({"user": "nobody-of-this-name"}, "Permission denied.*ssh-copy-id.*passphrase.*ssh-add"),
            ({"host": "no-such-host.invalid"}, "Could not resolve.*check the node's host"),
        ],
    )
    def test_the_error_of_an_unreachable_node_has_advice(
        self, sshd: Sshd, changes: dict[str, object], complaint: str
    ) -> None:
        with shell(sshd, **changes) as lab, pytest.raises(Unavailable, match=complaint) as error:
            lab.run(["true"])
        assert "\n" not in str(error.value)

    def test_output_of_a_login_shell_is_removed_from_answers(self, sshd: Sshd, tmp_path: Path) -> None:
        shouting = r"echo Welcome to lab1; exec sh -c \"$SSH_ORIGINAL_COMMAND\""
        with shell(sshd, key=another_key(sshd, tmp_path, shouting)) as lab:
            assert lab.run(["printf", "%s", "answer"]) == b"answer"
            with pytest.raises(SetupError, match="lab: no room"):
                lab.run(["sh", "-c", "echo no room >&2; exit 3"])

    def test_the_error_of_a_login_shell_without_commands_has_its_output(
        self, sshd: Sshd, tmp_path: Path
    ) -> None:
        refusing = "echo This account serves files only"
        with (
            shell(sshd, key=another_key(sshd, tmp_path, refusing)) as lab,
            pytest.raises(SetupError, match="lab: This account serves files only"),
        ):
            lab.run(["true"])

    def test_interactive_ssh_options_do_not_change_answers(self, sshd: Sshd) -> None:
        known = f"UserKnownHostsFile={sshd.known_hosts}"
        by_hand = (known, "RequestTTY=force", "RemoteCommand=tmux", "LogLevel=DEBUG")
        with shell(sshd, options=by_hand) as lab:
            assert lab.run(["cat"], given=b"a\nb\r\n\x04") == b"a\nb\r\n\x04"
        silent = shell(sshd, options=(known, "LogLevel=QUIET"), port=1)
        with silent as lab, pytest.raises(Unavailable, match="Connection refused"):
            lab.run(["true"])

    def test_options_of_a_node_override_the_defaults(self, sshd: Sshd) -> None:
        with shell(sshd, options=("ConnectTimeout=77",)) as lab:
            said = subprocess.run([*lab._command(), "-G", "lab"], capture_output=True, text=True, check=True)
        assert "connecttimeout 77" in said.stdout.splitlines()

    def test_a_changed_host_key_has_its_own_advice(self, sshd: Sshd, tmp_path: Path) -> None:
        hosts = tmp_path / "known_hosts"
        hosts.write_text(f"[127.0.0.1]:{sshd.port} {sshd.key.with_suffix('.pub').read_text()}")
        with (
            shell(sshd, options=(f"UserKnownHostsFile={hosts}",)) as lab,
            pytest.raises(Unavailable, match=r"HAS CHANGED!; was it reinstalled.*how to remove its old key"),
        ):
            lab.run(["true"])

    def test_a_key_that_others_can_read_is_refused(self, sshd: Sshd, tmp_path: Path) -> None:
        key = another_key(sshd, tmp_path)
        key.chmod(0o644)
        with shell(sshd, key=key) as lab, pytest.raises(Unavailable, match=f"{key}' are too open; chmod 600"):
            lab.run(["true"])

    @pytest.mark.parametrize("name", ["a" * 50, "a blank, 5 %h"])
    def test_the_temporary_folder_may_have_a_long_or_unusual_path(
        self, sshd: Sshd, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        with tempfile.TemporaryDirectory(prefix=name, dir="/tmp") as folder:
            monkeypatch.setattr(tempfile, "tempdir", folder)
            with shell(sshd) as lab:
                assert lab.run(["echo", "here"]) == b"here\n"

    @pytest.mark.needs("mounts")
    def test_an_incomplete_file_is_removed_from_a_full_disk(self, sshd: Sshd, tmp_path: Path) -> None:
        (tmp_path / "large").write_bytes(bytes(2**21))
        disk = tmp_path / "disk"
        disk.mkdir()
        with small_disk(disk), shell(sshd) as lab:
            with pytest.raises(SetupError, match="No space left"):
                lab.put(tmp_path / "large", f"{disk}/wheel")
            assert list(disk.iterdir()) == []

    def test_a_command_without_an_answer_ends_after_the_timeout(self, sshd: Sshd) -> None:
        with shell(sshd) as lab, pytest.raises(Unavailable, match="did not answer within"):
            lab.run(["sleep", "60"], timeout_s=1.0)
