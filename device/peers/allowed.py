"""The devices to share with, by node id: which key a connection to a node must prove."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.allow_list import AllowList
from nearsight.device.peers.node_id import NodeId, node_id_of_key


class AllowedPeers:
    """Public keys by node id, from a folder of ``*.key`` files. One thread refreshes it; any may ask.

    Parameters
    ----------
    folder : Path
        Of the keys, as `nearsight keys allow` fills it.

    Raises
    ------
    ConfigurationError
        If there is no such folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._list = AllowList(folder)
        self._keys: dict[NodeId, str] = {}
        self._names: Mapping[str, str] = {}
        self._read()

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._keys

    def public_key(self, node_id: NodeId) -> str | None:
        """The key in Z85 that this node must prove; None for a stranger."""
        return self._keys.get(node_id)

    def node_named(self, name: str) -> NodeId:
        """The node whose key is in ``NAME.key``.

        Raises
        ------
        ConfigurationError
            If there is no such key.
        """
        for key, known in self._names.items():
            if known == name:
                return node_id_of_key(key)
        raise ConfigurationError(
            f"no key called {name!r} is in {self._folder}",
            advice=f"let it in with `nearsight keys allow {name}.key --dir {self._folder}`",
        )

    def refresh(self) -> None:
        """Read the folder again if a file in it changed."""
        self._list.refresh()
        if self._list.names is not self._names:
            self._read()

    def _read(self) -> None:
        self._names = self._list.names
        self._keys = {node_id_of_key(key): key for key in self._names}
