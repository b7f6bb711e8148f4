"""Node ids, and the keys of allowed peers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nearsight.common.errors import ConfigurationError
from nearsight.common.rpc.allow_list import allow_client, forbid_client
from nearsight.common.rpc.security import generate_keys
from nearsight.device.peers.presence.identity import (
    AllowedPeers,
    NodeId,
    is_node_id,
    node_id_of_key,
    random_node_id,
    shown,
)


def test_a_known_key_has_a_known_id() -> None:
    # Computed with `b2sum`. All versions must agree, because beacons contain the id.
    assert shown(node_id_of_key("Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID")) == "5bc374dd612dcb28"


def test_random_ids_are_valid_and_different() -> None:
    rng = random.Random(1)
    ids = {random_node_id(rng) for _ in range(100)}
    assert len(ids) == 100
    assert all(map(is_node_id, ids))


def test_ids_are_shown_with_16_digits() -> None:
    assert shown(255) == "00000000000000ff"


def test_keys_are_found_by_the_id_and_added_and_removed_without_a_restart(tmp_path: Path) -> None:
    (tmp_path / "peers").mkdir()
    allowed = AllowedPeers(tmp_path / "peers")
    phone = generate_keys(tmp_path / "keys", "phone")
    node = node_id_of_key(phone.public_key)
    assert is_node_id(node) and allowed.public_key(node) is None
    allow_client(phone.public_file, tmp_path / "peers")
    allowed.refresh()
    assert (allowed.public_key(node), allowed.node_named("phone")) == (phone.public_key, node)
    assert allowed.public_key(NodeId(5)) is None
    forbid_client("phone", tmp_path / "peers")
    allowed.refresh()
    assert allowed.public_key(node) is None
    with pytest.raises(ConfigurationError, match="phone"):
        allowed.node_named("phone")


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        AllowedPeers(tmp_path / "nowhere")
