"""Reads and writes entries at the nodes that are responsible for them, this one included."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property

from nearsight.device.peers.read_course import ReadCourse
from nearsight.device.peers.reading import NodeAnswer
from nearsight.device.peers.store_calls import StoreCalls
from nearsight.device.peers.values import Entry
from nearsight.device.peers.view import View
from nearsight.device.peers.write_course import WriteCourse

_REMEMBERED_KEYS = 4096


@dataclass(slots=True)
class Mine:
    """Keys that a device is known to be a replica of, as long as it is settled in this view."""

    view: View | None
    everything: bool
    keys: set[str] = field(default_factory=set)


class StoreClient(StoreCalls):
    """Reads and writes of one device. Thread-safe; parameters as of `StoreCalls`."""

    @cached_property
    def mine(self) -> Mine:
        """Replaced as a whole when others are there; the first is of nobody."""
        return Mine(None, everything=False)

    def read(self, key: str, *, claim: bool) -> Future[NodeAnswer]:
        """What the nodes say about a key. The future fails with a `NearsightError`."""
        self.counts.reads += 1
        known = self._known_here(key, claim=claim)
        if known is not None:
            at_once: Future[NodeAnswer] = Future()
            at_once.set_result(known)
            return at_once
        course = ReadCourse(self, key, claim=claim)
        course.begin()
        return course.future

    def read_now(self, key: str, *, claim: bool) -> NodeAnswer:
        """As `read`, but waits.

        Raises
        ------
        NearsightError
            If no node answered.
        """
        self.counts.reads += 1
        known = self._known_here(key, claim=claim)
        if known is not None:
            return known
        course = ReadCourse(self, key, claim=claim)
        answer = course.ask_first()
        return answer if answer is not None else course.future.result()

    def _known_here(self, key: str, *, claim: bool) -> NodeAnswer | None:
        """What this device holds itself, if it is a replica of the key and has been told all writes of it."""
        entry = self.own.shared.read(key)
        if entry is None or (claim and entry.empty):
            return None
        standing, replicas = self.own.standing, self.settings.replicas
        view = standing.view
        if not standing.settled(view.digest):
            return None
        if len(view.nodes) > replicas and self.route.own not in self.route.ranking(key, view)[:replicas]:
            return None
        self.counts.own_reads += 1
        self._note_mine(view, key)
        return NodeAnswer(entry, settled=True)

    def _note_mine(self, view: View, key: str) -> None:
        if self.mine.view is not view or len(self.mine.keys) >= _REMEMBERED_KEYS:
            self.mine = Mine(view, everything=len(view.nodes) <= self.settings.replicas)
        self.mine.keys.add(key)

    def write(self, entry: Entry) -> Future[Sequence[Entry]]:
        """Write an entry to its replicas. The future holds what they know that the writer did not."""
        self.counts.writes += 1
        course = WriteCourse(self, entry)
        course.begin()
        return course.future
