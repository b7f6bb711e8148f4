"""A real sshd on loopback as a child process, with its own host key and configuration."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.leash import leashed
from support.needs import program
from support.waiting import wait_until

_PRIVILEGE_FOLDER = Path("/run/sshd")
_BECOME = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


@dataclass(frozen=True)
class Sshd:
    port: int
    folder: Path
    key: Path
    known_hosts: Path

    @property
    def node(self) -> str:
        """Lines of a node in an inventory that logs in to this server."""
        return (
            f'kind = "ssh"\nhost = "127.0.0.1"\nport = {self.port}\nkey = "{self.key}"\n'
            f'user = "{getpass.getuser()}"\n'
            f'options = ["UserKnownHostsFile={self.known_hosts}", "StrictHostKeyChecking=yes"]\n'
        )

    @property
    def log(self) -> str:
        return (self.folder / "sshd.log").read_text(errors="replace")


@contextmanager
def running_sshd(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Sshd]:
    """Serve until the block ends; sessions have ``environment``."""
    served = _configured(folder, environment or {})
    with serving(served):
        yield served


@contextmanager
def serving(sshd: Sshd) -> Iterator[None]:
    """Serve with an existing configuration; also again, after it was stopped."""
    if os.geteuid() == 0:  # the folder is not removed, because other tests may use it at the same time
        _PRIVILEGE_FOLDER.mkdir(mode=0o755, exist_ok=True)
    with (sshd.folder / "sshd.log").open("w") as log:
        command = (program("sshd") or "sshd", "-D", "-e", "-f", str(sshd.folder / "sshd_config"))
        process = subprocess.Popen(
            leashed("-S", "-c", _BECOME, *command),
            stdin=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        wait_until(lambda: "Server listening" in sshd.log or process.poll() is not None, what="sshd")
        assert process.poll() is None, sshd.log
        yield
    finally:
        process.terminate()
        process.wait(60)


def _configured(folder: Path, environment: Mapping[str, str]) -> Sshd:
    folder.mkdir(parents=True)
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    port = _free_port()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    lines = [
        f"Port {port}",
        "ListenAddress 127.0.0.1",
        f"HostKey {folder / 'host_key'}",
        f"AuthorizedKeysFile {folder / 'authorized_keys'}",
        "PidFile none",
        "StrictModes no",
        "MaxStartups 100",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        *(f'SetEnv "{name}={value}"' for name, value in environment.items()),
    ]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    return Sshd(port, folder, folder / "user_key", folder / "known_hosts")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
