"""Commands and files of a node over SSH: a lab machine, or a phone with Termux.

The command ``ssh`` is used, with the person's own configuration, keys and known hosts. All commands to one
node share a connection, which ends with the `SshShell`.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nearsight.common.errors import MissingDependency, SetupError, Unavailable
from nearsight.experiments.testbed.inventory import Host
from nearsight.experiments.testbed.nodes import ORDER_TIMEOUT_S, last_line

CONNECT_TIMEOUT_S = 10
_UNREACHABLE = 255
"""Exit status of ssh itself; those of commands are below."""
_NOT_FOUND = (
    "install it there (Debian: apt-get install python3 python3-venv); another Python is named with `python` "
    "in the node"
)
_ADVICE = (
    ("host key verification failed", "connect once by hand with `ssh {host}` and confirm the host's key"),
    ("permission denied", "let this machine's key in: `ssh-copy-id {host}`, or set user or key in the node"),
    ("could not resolve", "check the node's host"),
    ("connection refused", "is sshd running there, and is the port right? Termux listens on 8022"),
    ("timed out", "is the machine on, and in this network?"),
)


class SshShell:
    """Commands on a host over SSH; see `Shell`.

    Parameters
    ----------
    host : Host
        Where.
    testbed_id : str
        Part of the name of the socket of the shared connection.
    """

    def __init__(self, host: Host, testbed_id: str) -> None:
        self._host = host
        self._sockets = tempfile.TemporaryDirectory(prefix=f"nearsight-{testbed_id}-")

    def run(self, command: Sequence[str], *, given: bytes = b"", timeout_s: float = ORDER_TIMEOUT_S) -> bytes:
        """Run a command there."""
        return self._ssh([shlex.join(command)], given, timeout_s)

    def put(self, source: Path, target: str) -> None:
        """Copy a file there; it appears complete or not at all."""
        script = 'umask 077; mkdir -p "$(dirname "$1")" && cat >"$1.part" && mv "$1.part" "$1"'
        self.run(["sh", "-c", script, "sh", target], given=source.read_bytes(), timeout_s=600.0)

    def get(self, source: str, target: Path) -> None:
        """Copy a file from there."""
        content = self.run(["cat", source], timeout_s=600.0)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def close(self) -> None:
        """End the shared connection."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [*self._command(), "-O", "exit", self._target()],
                capture_output=True,
                timeout=CONNECT_TIMEOUT_S,
                check=False,
            )
        self._sockets.cleanup()

    def _target(self) -> str:
        spec = self._host.spec
        return f"{spec.user}@{spec.host}" if spec.user else spec.host

    def _command(self) -> list[str]:
        spec = self._host.spec
        socket = Path(self._sockets.name) / "%C"
        options = [
            "BatchMode=yes",
            f"ConnectTimeout={CONNECT_TIMEOUT_S}",
            "ServerAliveInterval=10",
            "ControlMaster=auto",
            "ControlPersist=60",
            f"ControlPath={socket}",
            *spec.options,
        ]
        command = ["ssh", *(part for option in options for part in ("-o", option))]
        if spec.port:
            command += ["-p", str(spec.port)]
        if spec.key:
            command += ["-i", str(spec.key), "-o", "IdentitiesOnly=yes"]
        return command

    def _ssh(self, words: Sequence[str], given: bytes, timeout_s: float) -> bytes:
        name = self._host.name
        try:
            done = subprocess.run(
                [*self._command(), self._target(), *words],
                input=given,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except FileNotFoundError as error:
            raise MissingDependency(
                "SSH nodes need the command 'ssh'", advice="on Debian: apt-get install openssh-client"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{name} did not answer within {timeout_s:.0f} s") from error
        if done.returncode == _UNREACHABLE:
            raise self._unreachable(last_line(done.stderr))
        if done.returncode != 0:
            complaint = last_line(done.stderr) or last_line(done.stdout) or f"status {done.returncode}"
            raise SetupError(f"{name}: {complaint}", advice=_NOT_FOUND if done.returncode == 127 else "")
        return done.stdout

    def _unreachable(self, complaint: str) -> Unavailable:
        advice = next((text for part, text in _ADVICE if part in complaint.lower()), "try `ssh {host}`")
        return Unavailable(
            f"{self._host.name} cannot be reached: {complaint.rstrip('.') or 'ssh ended'}",
            advice=advice.format(host=shlex.join(self._words_by_hand())),
        )

    def _words_by_hand(self) -> list[str]:
        """What a person says after ``ssh`` or ``ssh-copy-id`` to get to the same place."""
        spec = self._host.spec
        options = [part for option in spec.options for part in ("-o", option)]
        port = ["-p", str(spec.port)] if spec.port else []
        key = ["-i", str(spec.key)] if spec.key else []
        return [*port, *key, *options, self._target()]


def folder_path(host: Host, testbed_id: str) -> str:
    """Folder of one testbed on the node."""
    return f"{host.spec.folder}/{testbed_id}-{host.name}"


def agent_path(host: Host) -> str:
    """Where the agent is on the node."""
    return f"{host.spec.folder}/agent.py"


def venv_path(host: Host) -> str:
    """Virtual environment on the node; it stays for the next testbed."""
    return f"{host.spec.folder}/venv"


def venv_python(host: Host) -> str:
    """Its interpreter."""
    return f"{venv_path(host)}/bin/python"
