import random

import zmq

from nearsight.device.peers.presence.identity import is_node_id, node_id_of_key, random_node_id, shown


def test_the_id_follows_from_the_key_alone() -> None:
    public, other = (zmq.curve_keypair()[0].decode() for _ in range(2))
    assert node_id_of_key(public) == node_id_of_key(public)
    assert node_id_of_key(public) != node_id_of_key(other)
    assert is_node_id(node_id_of_key(public))


def test_a_known_key_has_a_known_id() -> None:
    # As `b2sum` says. Other versions must find the same: it is in every beacon.
    assert shown(node_id_of_key("Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID")) == "5bc374dd612dcb28"


def test_random_ids_are_ids() -> None:
    rng = random.Random(1)
    ids = {random_node_id(rng) for _ in range(100)}
    assert len(ids) == 100
    assert all(map(is_node_id, ids))


def test_ids_are_shown_with_all_their_digits() -> None:
    assert shown(255) == "00000000000000ff"
