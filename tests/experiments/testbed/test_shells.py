"""Commands and files of this machine and over SSH, against a real sshd; what goes wrong, in words."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from nearsight.common.errors import SetupError, Unavailable
from nearsight.experiments.testbed.inventory import Host, NodeSpec
from nearsight.experiments.testbed.shells import LocalShell, SshShell
from support.sshd import Sshd


def test_a_command_that_does_not_end_is_no_wrong_setting() -> None:
    with pytest.raises(Unavailable, match=r"sleep on this machine did not end within 0 s; .*busy"):
        LocalShell().run(["/bin/sleep", "60"], timeout_s=0.1)


def test_a_command_that_fails_here_shows_its_last_words() -> None:
    with pytest.raises(SetupError, match="sh: no room"):
        LocalShell().run(["sh", "-c", "echo first >&2; echo no room >&2; exit 3"])


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(SetupError, match="no-such-program cannot be run"):
        LocalShell().run(["no-such-program"])


def shell(sshd: Sshd, **changes: object) -> closing[SshShell]:
    options = (f"UserKnownHostsFile={sshd.known_hosts}",)
    spec = NodeSpec(kind="ssh", host="127.0.0.1", port=sshd.port, key=sshd.key, options=options)
    host = Host(name="lab", node="lab", spec=spec.model_copy(update=changes), address="127.0.0.1")
    return closing(SshShell(host, "test"))


@pytest.mark.system
@pytest.mark.needs("sshd")
class TestOverSsh:
    def test_a_user_is_never_an_option(self, sshd: Sshd, tmp_path: Path) -> None:
        proof = tmp_path / "proof"
        user = f"-oProxyCommand=touch {proof};"
        with shell(sshd, user=user) as lab, pytest.raises(Unavailable):
            lab.run(["true"])
        assert not proof.exists()

    def test_files_and_words_pass_as_they_are(self, sshd: Sshd, tmp_path: Path) -> None:
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

    def test_a_command_that_fails_shows_its_last_words(self, sshd: Sshd) -> None:
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
            ({"user": "nobody-of-this-name"}, "Permission denied.*ssh-copy-id"),
            ({"host": "no-such-host.invalid"}, "Could not resolve.*check the node's host"),
        ],
    )
    def test_a_node_that_cannot_be_reached_says_what_to_do(
        self, sshd: Sshd, changes: dict[str, object], complaint: str
    ) -> None:
        with shell(sshd, **changes) as lab, pytest.raises(Unavailable, match=complaint) as error:
            lab.run(["true"])
        assert "\n" not in str(error.value)

    def test_a_command_that_hangs_is_given_up(self, sshd: Sshd) -> None:
        with shell(sshd) as lab, pytest.raises(Unavailable, match="did not answer within"):
            lab.run(["sleep", "60"], timeout_s=1.0)
