"""The store for applications, on two devices, and the example of the documentation."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from io import StringIO

import pytest

from nearsight import ConfigurationError, InvalidArgument, Peer, PeerStore, Recognizer
from nearsight.device.cooperation.protocol import popularity_key
from support.examples import example
from support.gallery import photo_features
from support.sharing_devices import Scene, name
from support.waiting import LONG_S, wait_until

S = LONG_S


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[Recognizer, Recognizer]]:
    with ExitStack() as stack:
        scene = Scene(stack)
        first, second = scene.device(), scene.device()
        scene.meet()
        yield first, second


@pytest.fixture
def stores(devices: tuple[Recognizer, Recognizer]) -> tuple[PeerStore, PeerStore]:
    return devices[0].store, devices[1].store


def test_all_kinds_of_values_are_available_on_the_other_device(stores: tuple[PeerStore, PeerStore]) -> None:
    here, there = stores
    here.put("note", "grüße").result(S)
    here.append("list", b"one").result(S)
    there.append("list", "two").result(S)
    here.merge("votes", {"a": 2}).result(S)
    there.merge("votes", {"a": 1, "b": 1}).result(S)
    assert there.get_blocking("note") == there.get("note").result(S) == "grüße".encode()
    assert here.items("list").result(S) == (b"one", b"two")
    assert here.counts("votes").result(S) == there.counts("votes").result(S) == {"a": 3, "b": 1}
    there.remove("list", "one").result(S)
    here.delete("note").result(S)
    assert here.items("list").result(S) == (b"two",)
    assert there.get_blocking("note") is None


def test_keys_of_applications_are_separate_from_those_of_the_sdk(
    devices: tuple[Recognizer, Recognizer], stores: tuple[PeerStore, PeerStore]
) -> None:
    stores[0].put(popularity_key("museum"), b"mine").result(S)
    cooperation = devices[1]._local.cooperation  # type: ignore[union-attr]
    assert cooperation is not None
    assert cooperation.node.store.counts(popularity_key("museum")).result(S) is not None
    assert stores[1].get_blocking(popularity_key("museum")) == b"mine"


def test_it_can_be_awaited(stores: tuple[PeerStore, PeerStore]) -> None:
    async def round_trip() -> bytes | None:
        await asyncio.wrap_future(stores[0].put("awaited", b"v"))
        return await asyncio.wrap_future(stores[1].get("awaited"))

    assert asyncio.run(round_trip()) == b"v"


@pytest.mark.parametrize("key", ["", "a\0b", "k" * 512, "\ud800"])
def test_invalid_keys_are_refused(stores: tuple[PeerStore, PeerStore], key: str) -> None:
    with pytest.raises(InvalidArgument, match="key"):
        stores[0].put(key, b"v").result(S)
    with pytest.raises(InvalidArgument, match="key"):
        stores[0].get_blocking(key)


def test_a_key_that_is_too_long_is_refused_with_the_limit_of_the_application(
    stores: tuple[PeerStore, PeerStore],
) -> None:
    longest = "\u00e9" * 250 + "k"
    store = stores[0]
    store.put(longest, b"v").result(S)
    assert stores[1].get_blocking(longest) == b"v"
    calls = (
        lambda key: store.put(key, b"v").result(S),
        lambda key: store.append(key, b"v").result(S),
        lambda key: store.merge(key, {"a": 1}).result(S),
        lambda key: store.delete(key).result(S),
        store.get_blocking,
    )
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"must have 1 to 501 bytes, got 502; use a shorter key"):
            call(longest + "k")


def test_programming_errors_are_raised_immediately(stores: tuple[PeerStore, PeerStore]) -> None:
    store = stores[0]
    with pytest.raises(TypeError, match="json"):
        store.put("k", {"a": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a key is text, not int"):
        store.put(5, "v")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="of 'a' is not an integer: 'b'"):
        store.merge("k", {"a": "b"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="name of a counter is text, not int: 5"):
        store.merge("k", {5: 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="must be callable, not NoneType"):
        store.watch(None)  # type: ignore[arg-type]
    for ttl_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="ttl_s"):
            store.append("k", b"v", ttl_s=ttl_s)
    store.put("one kind", b"v").result(S)
    with pytest.raises(InvalidArgument, match="kind of value"):
        store.items("one kind").result(S)


def test_errors_name_the_key_of_the_application(stores: tuple[PeerStore, PeerStore]) -> None:
    store = stores[0]
    store.append("a list", b"v").result(S)
    calls = (
        lambda: store.put("large", bytes(2**20 + 1)).result(S),
        lambda: store.counts("a list").result(S),
        lambda: store.get("a list").result(S),
        lambda: store.get_blocking("a list"),
        lambda: store.merge("votes", {str(n): 1 for n in range(200_000)}).result(S),
    )
    for call in calls:
        with pytest.raises(InvalidArgument, match=r"'(large|a list|votes)'") as error:
            call()
        assert "app/" not in str(error.value)


def test_changes_of_peers_are_reported_until_the_watch_ends() -> None:
    with ExitStack() as stack:
        scene = Scene(stack)
        device = scene.device()
        seen: list[tuple[Peer, ...]] = []
        end = device.store.watch(seen.append)
        wait_until(lambda: seen == [()])
        stranger = scene.stranger()
        wait_until(lambda: [peer.device_id for peer in seen[-1]] == ["stranger"])
        end()
        stranger.stop(0.5)
        wait_until(lambda: device.store.peers() == ())
        assert seen[-1] != ()


def test_an_ended_watch_receives_no_queued_changes(
    devices: tuple[Recognizer, Recognizer],
) -> None:
    store, free, told = devices[0].store, threading.Event(), threading.Event()
    seen: list[tuple[Peer, ...]] = []

    def wait(_: tuple[Peer, ...]) -> None:
        free.wait(S)

    def tell(_: tuple[Peer, ...]) -> None:
        told.set()

    ends = [store.watch(each) for each in (wait, seen.append, tell)]
    ends[1]()
    free.set()
    assert told.wait(S)
    assert seen == []
    ends[0]()
    ends[2]()


def test_without_sharing_the_error_names_the_setting() -> None:
    with Recognizer("tcp://127.0.0.1:9", None, "museum") as alone:
        with pytest.raises(ConfigurationError) as error:
            _ = alone.store
        assert "PeerSettings(enabled=True)" in str(error.value.advice)


def test_the_example_shows_visitors_and_popular_objects() -> None:
    visitors_nearby = example("visitors_nearby")
    with ExitStack() as stack:
        scene = Scene(stack)
        anna, ben = (visitors_nearby.Visit(scene.device(), who) for who in ("anna", "ben"))
        scene.meet()
        assert "answered by" in "\n".join(anna.look(photo_features(1), note="look up!"))
        said = "\n".join(ben.look(photo_features(1)))
        assert "note: look up!" in said
        assert "also here: anna" in said
        anna.leave()
        assert "also here" not in "\n".join(ben.look(photo_features(1)))
        assert ben.popular(1) == [(name(1), 3)]


def test_the_example_shows_texts_of_other_devices_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    visitors_nearby = example("visitors_nearby")
    with ExitStack() as stack:
        scene = Scene(stack)
        device = scene.device()
        other = scene.device().store
        scene.meet()
        other.append(f"here/{name(1)}", b"caf\xe9").result(S)
        other.merge(visitors_nearby.VISITS, {"\x1b]0;title\x07": 7}).result(S)
        visit = visitors_nearby.Visit(device, "anna")
        assert "also here: caf\N{REPLACEMENT CHARACTER}" in "\n".join(visit.look(photo_features(1)))

        monkeypatch.setattr(visitors_nearby, "Recognizer", lambda *_, **__: nullcontext(device))
        monkeypatch.setattr("sys.argv", ["visitors_nearby", "no-such.jpg"])
        monkeypatch.setattr("sys.stdin", StringIO("\n"))
        visitors_nearby.main()
        said = capsys.readouterr().out
        assert "]0;title: 7 visits" in said
        assert "\x1b" not in said
