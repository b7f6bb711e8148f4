"""The command line: one command, ``nearsight``, with the subcommands of every tier."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``nearsight`` command."""
    raise SystemExit(0)


if __name__ == "__main__":
    main()
