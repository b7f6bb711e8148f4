"""The clients that a server accepts: a folder of public keys, read again when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nearsight.common.errors import ConfigurationError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.security import read_public_key


class AllowList:
    """Names of clients by public key (Z85).

    Adding a file lets a client in, and removing it locks the client out, without a restart. A file that
    cannot be read is reported and skipped: one bad file must not lock the others out.

    Parameters
    ----------
    folder : Path
        Holds ``*.key`` files.

    Raises
    ------
    ConfigurationError
        If there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigurationError(
                f"the folder of allowed clients {folder} does not exist",
                advice=f"let a client in with `nearsight keys allow CLIENT.key --dir {folder}`",
            )
        self._folder = folder
        self._log = get_logger("rpc.allow_list")
        self._signature: frozenset[tuple[str, int, int]] = frozenset()
        self._names: dict[str, str] = {}
        self.refresh()

    def name_of(self, public_key: str) -> str | None:
        """The name of the client with this key, None if it is not allowed. As of the last `refresh`."""
        return self._names.get(public_key)

    @property
    def names(self) -> Mapping[str, str]:
        """Names by public key. As of the last `refresh`."""
        return self._names

    def __len__(self) -> int:
        return len(self._names)

    def refresh(self) -> None:
        """Read the folder again if a file in it changed."""
        signature = self._look()
        if signature == self._signature:
            return
        names: dict[str, str] = {}
        for file_name, _, _ in sorted(signature):
            try:
                names[read_public_key(self._folder / file_name)] = file_name.removesuffix(".key")
            except ConfigurationError as error:
                self._log.warning("skipped a key file", file=file_name, reason=error.message)
        self._names, self._signature = names, signature
        self._log.info("allowed clients read", folder=str(self._folder), clients=len(names))

    def _look(self) -> frozenset[tuple[str, int, int]]:
        found = set()
        for path in self._folder.glob("*.key"):
            try:
                status = path.stat()
            except OSError:  # removed since it was listed
                continue
            found.add((path.name, status.st_mtime_ns, status.st_size))
        return frozenset(found)
