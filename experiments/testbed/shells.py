"""Commands and files of one node: of this machine, or over SSH of a lab machine or a phone with Termux.

SSH nodes use the command ``ssh`` with the user's own configuration, keys and known hosts. All commands to one
node share a connection, which ends with the `SshShell`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from nearsight.common.errors import MissingDependency, SetupError, Unavailable
from nearsight.experiments.testbed.inventory import Host

ORDER_TIMEOUT_S = 30.0
FILE_TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 10
_UNREACHABLE = 255
"""Exit status of ssh itself; those of commands are smaller."""
_BEGINS = "nearsight: the output begins"
"""Line before the output of a command. Output of a login shell, as from ``.bashrc``, is above it."""
_NOT_FOUND = (
    "install it there (Debian: apt-get install python3 python3-venv); another Python is named with `python` "
    "in the node"
)
_ADVICE = (
    ("identification has changed", "was it reinstalled? `ssh {host}` says how to remove its old key"),
    ("are too open", "chmod 600 that file"),
    ("could not resolve", "check the node's host"),
    ("host key verification failed", "connect once by hand with `ssh {host}` and confirm the host's key"),
    (
        "permission denied",
        "install this machine's key there: `ssh-copy-id {host}`, or set user or key in the node; "
        "a key with a passphrase needs an agent: `ssh-add`",
    ),
    ("connection refused", "is sshd running there, and is the port right? Termux listens on 8022"),
    ("timed out", "is the machine on, and in this network?"),
    ("too long", "set TMPDIR to a shorter path, such as /tmp"),
)
"""Part of an error line of ssh → advice. If several lines match, the first entry here is the cause."""


def last_line(output: bytes) -> str:
    """The last line of a program's error output."""
    lines = output.decode(errors="replace").strip().splitlines()
    return " ".join(lines[-1].split()) if lines else ""


class Shell:
    """Commands and files of a node on this machine; `SshShell` does the same on another one."""

    def run(self, command: Sequence[str], *, given: bytes = b"", timeout_s: float = ORDER_TIMEOUT_S) -> bytes:
        """Run a command and return its output.

        Raises
        ------
        Unavailable
            If the node cannot be reached, or does not answer in time.
        SetupError
            If the command fails; with the last line of its error output.
        """
        try:
            done = subprocess.run(command, input=given, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(
                f"{Path(command[0]).name} on this machine did not end within {timeout_s:.0f} s",
                advice="is the machine too busy?",
            ) from error
        except OSError as error:
            raise SetupError(f"{command[0]} cannot be run: {error}") from error
        if done.returncode != 0:
            raise SetupError(f"{command[0]}: {last_line(done.stderr) or f'exit status {done.returncode}'}")
        return done.stdout

    def put(self, source: Path, target: str) -> None:
        """Copy a file to the node."""
        self.get(str(source), Path(target))

    def get(self, source: str, target: Path) -> None:
        """Copy a file from the node."""
        with Path(source).open("rb") as given, _new_file(target) as file:
            shutil.copymode(source, target)  # before the content, which may be a secret key
            shutil.copyfileobj(given, file)

    def close(self) -> None:
        """Close connections, if there are any."""


class SshShell(Shell):
    """Commands on a host over SSH.

    Parameters
    ----------
    host : Host
        The host.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._sockets = tempfile.TemporaryDirectory(prefix="nearsight-")

    def run(self, command: Sequence[str], *, given: bytes = b"", timeout_s: float = ORDER_TIMEOUT_S) -> bytes:
        """Run a command there; see `Shell`."""
        name = self._host.name
        # sh parses the words, whatever the login shell is: for the login shell they are one quoted word.
        script = shlex.quote(f"echo '{_BEGINS}'; exec {shlex.join(command)}")
        words = [*self._command(), "--", self._target(), f"sh -c {script}"]
        try:
            done = subprocess.run(words, input=given, capture_output=True, timeout=timeout_s, check=False)
        except FileNotFoundError as error:
            raise MissingDependency(
                "SSH nodes need the command 'ssh'", advice="on Debian: apt-get install openssh-client"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{name} did not answer within {timeout_s:.0f} s") from error
        if done.returncode == _UNREACHABLE:
            raise self._unreachable_error(done.stderr)
        above, begun, output = done.stdout.partition(f"{_BEGINS}\n".encode())
        if done.returncode != 0 or not begun:
            said = last_line(done.stderr) or last_line(output or above)
            complaint = said or f"the command ended with status {done.returncode}, without output"
            raise SetupError(f"{name}: {complaint}", advice=_NOT_FOUND if done.returncode == 127 else "")
        return output

    def put(self, source: Path, target: str) -> None:
        """Copy a file to the host atomically."""
        write = 'mkdir -p "$(dirname "$1")" && cat >"$1.$$" && mv "$1.$$" "$1"'
        script = f'umask 077; {write} || {{ rm -f "$1.$$"; exit 1; }}'
        self.run(["sh", "-c", script, "sh", target], given=source.read_bytes(), timeout_s=FILE_TIMEOUT_S)

    def get(self, source: str, target: Path) -> None:
        """Copy a file from the host."""
        content = self.run(["cat", source], timeout_s=FILE_TIMEOUT_S)
        with _new_file(target) as file:
            file.write(content)

    def close(self) -> None:
        """Close the shared connection."""
        words = [*self._command(), "-O", "exit", "--", self._target()]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(words, capture_output=True, timeout=CONNECT_TIMEOUT_S, check=False)
        self._sockets.cleanup()

    def _target(self) -> str:
        spec = self._host.spec
        return f"{spec.user}@{spec.host}" if spec.user else spec.host

    def _command(self) -> list[str]:
        options = [  # ssh uses the first value of an option
            "BatchMode=yes",
            "ControlMaster=auto",
            "ControlPersist=60",
            f'ControlPath="{self._sockets.name.replace("%", "%%")}/c"',  # short: a path has 107 bytes at most
            # settings for interactive use would interfere
            *("RequestTTY=no", "RemoteCommand=none", "LogLevel=INFO"),
        ]
        defaults = [f"ConnectTimeout={CONNECT_TIMEOUT_S}", "ServerAliveInterval=10"]
        defaults += ["IdentitiesOnly=yes"] if self._host.spec.key else []
        return ["ssh", *_options(options), *self._connection_options(), *_options(defaults)]

    def _connection_options(self) -> list[str]:
        """Options of ``ssh`` or ``ssh-copy-id`` with which a user reaches the same host."""
        spec = self._host.spec
        port = ["-p", str(spec.port)] if spec.port else []
        key = ["-i", str(spec.key)] if spec.key else []
        return [*port, *key, *_options(spec.options)]

    def _unreachable_error(self, said: bytes) -> Unavailable:
        lines = [" ".join(line.split()).strip("@. ") for line in said.decode(errors="replace").splitlines()]
        known = [(line, text) for part, text in _ADVICE for line in lines if part in line.lower()]
        complaint, advice = known[0] if known else ("".join(lines[-1:]), "try `ssh {host}`")
        by_hand = shlex.join([*self._connection_options(), self._target()])
        return Unavailable(
            f"{self._host.name} cannot be reached: {complaint or 'the connection broke'}",
            advice=advice.format(host=by_hand),
        )


def _new_file(target: Path) -> BinaryIO:
    """Create a file for its owner alone in place of an existing one; never follows a link of that name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    return os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _options(options: Sequence[str]) -> list[str]:
    return [part for option in options for part in ("-o", option)]
