"""Recognise exhibits, and share with visitors nearby: positions, popular exhibits, and notes.

The devices share data directly, without a server. Start the example in two terminals, with an edge that
serves the catalogue::

    python examples/visitors_nearby.py --edge tcp://127.0.0.1:7100 --name anna 1.jpg 2.jpg
    python examples/visitors_nearby.py --edge tcp://127.0.0.1:7100 --name ben --note "look up!" 1.jpg
"""
# ruff: noqa: T201  prints for the user

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress

from nearsight import NearsightError, Peer, PeerSettings, PeerStore, Recognizer, RecognizerSettings

VISITS = "visits"
LIFE_S = 3600.0
"""Time after which notes and positions disappear, also those of a device that was switched off."""


def printable(text: str) -> str:
    """Remove characters that a terminal would interpret from texts of other devices."""
    return "".join(one for one in text if one.isprintable())


class Visit:
    """One visitor's tour of the exhibits.

    Parameters
    ----------
    recognizer : Recognizer
        With peers enabled.
    name : str
        Name of the visitor that the other devices receive.
    """

    def __init__(self, recognizer: Recognizer, name: str) -> None:
        self._recognizer = recognizer
        self._store: PeerStore = recognizer.store
        self._name = name
        self._here = ""

    def look(self, photo: str | bytes, note: str = "") -> Iterator[str]:
        """Recognise a photo, and report what visitors nearby shared about the exhibit.

        Parameters
        ----------
        photo : str or bytes
            Path or content of a file.
        note : str
            Is stored at the exhibit for an hour, for other visitors.
        """
        found = self._recognizer.recognize_blocking(photo)
        if not found.known:
            yield "not in the catalogue"
            return
        yield f"{found.label or found.object_id} (answered by the {found.answered_by})"
        self.leave()
        self._here = found.object_id
        # These operations run concurrently. The store retries a failed merge itself.
        self._store.merge(VISITS, {found.object_id: 1})
        arrived = self._store.append(f"here/{found.object_id}", self._name, ttl_s=LIFE_S)
        left_note = self._store.get_blocking(f"note/{found.object_id}")
        if left_note is not None:
            yield f"  note: {left_note.decode(errors='replace')}"
        if note:
            self._store.put(f"note/{found.object_id}", note, ttl_s=LIFE_S).result()
        arrived.result()
        here = self._store.items(f"here/{found.object_id}").result()
        others = sorted(name.decode(errors="replace") for name in here if name != self._name.encode())
        if others:
            yield f"  also here: {', '.join(others)}"

    def leave(self) -> None:
        """Leave the current exhibit."""
        if self._here:
            self._store.remove(f"here/{self._here}", self._name).result()
        self._here = ""

    def popular(self, count: int = 3) -> list[tuple[str, int]]:
        """The exhibits with the most visits, over all devices."""
        visits = self._store.counts(VISITS).result()
        return sorted(visits.items(), key=lambda item: (-item[1], item[0]))[:count]


def show_peers(peers: tuple[Peer, ...]) -> None:
    """Print the devices nearby."""
    names = ", ".join(printable(peer.device_id) for peer in peers)
    print(f"[{len(peers)} nearby: {names or 'none'}]")


def main() -> None:
    """Visit the exhibits in the photos, one after each press of Enter."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edge", default="tcp://127.0.0.1:7100")
    parser.add_argument("--catalogue", default="museum")
    parser.add_argument("--name", default="visitor")
    parser.add_argument("--note", default="", help="note to store at each exhibit")
    parser.add_argument("photos", nargs="+")
    arguments = parser.parse_args()
    settings = RecognizerSettings(peers=PeerSettings(enabled=True))
    with Recognizer(
        arguments.edge, None, arguments.catalogue, device_id=arguments.name, settings=settings
    ) as recognizer:
        visit = Visit(recognizer, arguments.name)
        recognizer.store.watch(show_peers)
        with suppress(KeyboardInterrupt):
            for photo in arguments.photos:
                try:
                    for line in visit.look(photo, arguments.note):
                        print(printable(line))
                except NearsightError as error:
                    print(f"{photo}: {error}")
                print("Press Enter for the next exhibit")
                sys.stdin.readline()
        visit.leave()
        for object_id, visits in visit.popular():
            print(printable(f"{object_id}: {visits} visits"))


if __name__ == "__main__":
    main()
