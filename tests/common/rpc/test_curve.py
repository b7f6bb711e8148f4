"""CURVE at the server: an invalid step is not answered. Clients of libzmq are tested in test_security.py."""

from collections.abc import Callable

import pytest
import zmq
from zmq.utils import z85

from nearsight.common.rpc.curve import Curve
from nearsight.common.rpc.security import KeyPair
from nearsight.common.rpc.settings import ServerSettings
from nearsight.common.rpc.zmtp import ProtocolError, Refused, Session
from support.zmtp import CurveClient, frame, greeting


def key_pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


SERVER = key_pair()
CLIENT = key_pair()


def session(admit: Callable[[str], None] = lambda _: None) -> Session:
    one = Session(Curve(*map(z85.decode, (SERVER.public, SERVER.secret)), admit), ServerSettings())
    one.receive(greeting(b"CURVE"))
    one.replies.clear()
    return one


def answer(one: Session) -> bytes:
    """The only reply, without the header of its frame."""
    (reply,) = one.replies
    one.replies.clear()
    return reply[2:]


def client() -> CurveClient:
    return CurveClient(CLIENT, SERVER.public)


def connected() -> tuple[Session, CurveClient]:
    one, peer = session(), client()
    one.receive(frame(peer.hello(), 4))
    one.receive(frame(peer.initiate(answer(one)), 4))
    assert answer(one).startswith(b"\x05READY")
    return one, peer


def test_a_client_that_proves_its_key_is_identified_by_it_and_served() -> None:
    one, peer = connected()
    assert one.mechanism.key == CLIENT.public
    large = bytes(100_000)
    arrived = one.receive(frame(peer.message(b"a", 1)) + frame(peer.message(b"b")))
    assert arrived == [[b"a", b"b"]]
    (pieces,) = [b"".join(map(bytes, one.encode([b"c", large])))]
    first = 2 + pieces[1]
    assert peer.opened(pieces[2:first]) == (1, b"c")
    assert peer.opened(pieces[first + 9 :]) == (0, large)
    assert CLIENT.public not in repr(one.mechanism)
    assert large[:16] not in pieces


def test_a_key_that_is_not_allowed_is_refused_after_it_was_proved() -> None:
    asked: list[str] = []

    def refuse(key: str) -> None:
        asked.append(key)
        raise Refused("it is not allowed")

    one, peer = session(refuse), client()
    one.receive(frame(peer.hello(), 4))
    with pytest.raises(Refused):
        one.receive(frame(peer.initiate(answer(one)), 4))
    assert answer(one) == b"\x05ERROR\x03400"
    assert asked == [CLIENT.public]
    assert not one.mechanism.done


def altered(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize("position", [0, 6, 80, 119, 120, 199])
def test_an_altered_hello_is_not_answered(position: int) -> None:
    one = session()
    with pytest.raises(ProtocolError):
        one.receive(frame(altered(client().hello(), position), 4))
    assert one.replies == []


def test_a_hello_for_another_server_is_not_answered() -> None:
    one = session()
    with pytest.raises(ProtocolError):
        one.receive(frame(CurveClient(CLIENT, key_pair().public).hello(), 4))
    assert one.replies == []


@pytest.mark.parametrize("position", [0, 9, 104, 105, 113, -1])
def test_an_altered_initiate_is_not_answered(position: int) -> None:
    one, peer = session(), client()
    one.receive(frame(peer.hello(), 4))
    initiate = peer.initiate(answer(one))
    with pytest.raises(ProtocolError):
        one.receive(frame(altered(initiate, position % len(initiate)), 4))
    assert one.replies == []


def test_an_initiate_of_another_connection_is_not_answered() -> None:
    first, second, peer = session(), session(), client()
    first.receive(frame(peer.hello(), 4))
    initiate = peer.initiate(answer(first))
    peer.count = 0
    second.receive(frame(peer.hello(), 4))
    answer(second)
    with pytest.raises(ProtocolError):
        second.receive(frame(initiate, 4))
    assert second.replies == []


def test_a_client_cannot_use_the_public_key_of_another() -> None:
    thief = CurveClient(KeyPair(CLIENT.public, key_pair().secret), SERVER.public)
    one = session(lambda _: pytest.fail("a key that was not proved is looked up"))
    one.receive(frame(thief.hello(), 4))
    with pytest.raises(ProtocolError):
        one.receive(frame(thief.initiate(answer(one)), 4))
    assert one.replies == []


@pytest.mark.parametrize("size", [0, 7, 8, 113, 200])
def test_an_initiate_without_valid_content_is_refused_at_any_size(size: int) -> None:
    one = session()
    one.receive(frame(client().hello(), 4))
    with pytest.raises(ProtocolError):
        one.receive(frame((b"\x08INITIATE" + bytes(200))[:size], 4))


def test_a_frame_that_comes_twice_ends_the_connection() -> None:
    one, peer = connected()
    copied = frame(peer.message(b"pay"))
    assert one.receive(copied) == [[b"pay"]]
    with pytest.raises(ProtocolError, match="repeated"):
        one.receive(copied)


@pytest.mark.parametrize("position", [0, 15, 16, -1])
def test_a_frame_that_was_altered_ends_the_connection(position: int) -> None:
    one, peer = connected()
    sent = peer.message(b"content")
    with pytest.raises(ProtocolError):
        one.receive(frame(altered(sent, position % len(sent))))


@pytest.mark.parametrize("body", [b"", b"plain", b"\x07MESSAGE" + bytes(24), bytes(200)])
def test_a_frame_that_is_not_encrypted_ends_the_connection(body: bytes) -> None:
    one, _ = connected()
    with pytest.raises(ProtocolError):
        one.receive(frame(body))


def test_no_two_frames_to_a_client_have_the_same_number() -> None:
    one, _ = connected()
    sent = b"".join(bytes(piece) for _ in range(20) for piece in one.encode([b"same"]))
    size = len(sent) // 20
    numbers = [sent[start + 10 : start + 18] for start in range(0, len(sent), size)]
    assert numbers == sorted(set(numbers))
    assert int.from_bytes(numbers[0], "big") > 1  # READY was the first


def test_a_heartbeat_is_answered_encrypted() -> None:
    one, peer = connected()
    assert one.receive(frame(peer.message(b"\x04PING\x00\x64abc", 2))) == []
    assert peer.opened(answer(one)) == (2, b"\x04PONGabc")
    assert peer.opened(one.ping()[2:]) == (2, b"\x04PING\x00\x00")
