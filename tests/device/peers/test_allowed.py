from pathlib import Path

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.security import allow_client, forbid_client, generate_keys
from nearsight.device.peers.presence.identity import AllowedPeers, NodeId, node_id_of_key


def test_a_node_id_selects_the_key_that_must_be_proved(tmp_path: Path) -> None:
    phone = generate_keys(tmp_path / "keys", "phone")
    allow_client(phone.public_file, tmp_path / "peers")
    allowed = AllowedPeers(tmp_path / "peers")
    node = node_id_of_key(phone.public_key)
    assert allowed.public_key(node) == phone.public_key
    assert allowed.node_named("phone") == node
    assert node in allowed
    assert NodeId(5) not in allowed


def test_keys_come_and_go_without_a_restart(tmp_path: Path) -> None:
    (tmp_path / "peers").mkdir()
    allowed = AllowedPeers(tmp_path / "peers")
    phone = generate_keys(tmp_path / "keys", "phone")
    node = node_id_of_key(phone.public_key)
    allow_client(phone.public_file, tmp_path / "peers")
    allowed.refresh()
    assert node in allowed
    forbid_client("phone", tmp_path / "peers")
    allowed.refresh()
    assert node not in allowed
    with pytest.raises(ConfigurationError, match="phone"):
        allowed.node_named("phone")


def test_a_folder_that_is_missing_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        AllowedPeers(tmp_path / "nowhere")
