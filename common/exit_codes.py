"""What the exit code of the ``nearsight`` command says, for scripts."""

from __future__ import annotations

from types import MappingProxyType

INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES = MappingProxyType(
    {
        0: "done",
        1: "a bug, here or on the other side",
        2: "wrong arguments, or no such file, catalogue or object",
        3: "the peer refused the key, or is not who it should be",
        4: "a peer is unreachable, overloaded, too late or not ready; trying again may help",
        5: "this machine must change first: settings, a missing library, a port in use, a damaged file",
        6: "every photo was answered, one or more with: unknown (`nearsight recognize`)",
        INTERRUPTED: "interrupted with Ctrl-C",
        BROKEN_PIPE: "whoever read the output closed it",
    }
)


def exit_code_help() -> str:
    """The table as text for the end of ``nearsight --help``."""
    return "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
