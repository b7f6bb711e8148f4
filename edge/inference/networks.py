"""Networks of an edge: which ones the cloud offers, which are stored here, and who answers a request.

A network of the cloud's listing is downloaded at its first request. A request whose network is not in memory
is answered by this edge after the load, or by the cloud while the edge loads the network in the background.
The earlier expected answer is chosen (`common/model_cache/load_or_forward.py`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from nearsight.common.background.worker import BackgroundWorker
from nearsight.common.clock import Clock
from nearsight.common.errors import CorruptStore, NearsightError, NotFound, Overloaded, SetupError
from nearsight.common.inference.leases import Absent, Lease
from nearsight.common.inference.manifest import Manifest
from nearsight.common.inference.model_memory import ModelMemory
from nearsight.common.inference.repository import ModelRepository
from nearsight.common.inference.settings import ModelSettings
from nearsight.common.logging import get_logger
from nearsight.common.model_cache.hindsight import Hindsight
from nearsight.common.model_cache.load_or_forward import AccuracyBudget, Answerer, soonest
from nearsight.common.model_cache.policy import ModelCosts
from nearsight.common.rpc.client import Reply
from nearsight.edge.cloud_client import CloudClient, when_done
from nearsight.edge.inference.downloads import NetworkDownloads
from nearsight.edge.memory_partition import NetworkUse
from nearsight.protos.inference_pb2 import ListModelsResponse

_TIMEOUT_S = 10.0
_LIST_AT_MOST_EVERY_S = 1.0
_NEWEST_WEIGHT = 0.2
_LOOK_BACK_EVERY_S = 30.0
_FIRST_FORWARD_MS = 100.0
"""Assumed time of the cloud's answer until one was measured."""

Suits = Callable[[Manifest, Manifest], bool]
"""Whether the second network may stand in for the first, regardless of accuracy."""


class EdgeNetworks:
    """Decides who answers a request. `admit`, `knows` and `forwarded` are thread-safe.

    Parameters
    ----------
    settings : ModelSettings
        Folder and memory.
    cloud : CloudClient
        Source of networks.
    cloud_lost : callable
        Returns whether the cloud is unreachable now.
    poll_s : float
        Interval between listings of the cloud's networks [s].
    clock : Clock
        Must run in real time.

    Attributes
    ----------
    repository : ModelRepository
        The files that are stored here.
    memory : ModelMemory
        The networks that are in memory.
    hindsight : Hindsight or None
        Waiting times of recent requests and their lower bounds.
    """

    def __init__(
        self,
        settings: ModelSettings,
        cloud: CloudClient,
        cloud_lost: Callable[[], bool],
        poll_s: float,
        clock: Clock,
    ) -> None:
        self.repository = ModelRepository(settings.folder)
        self.memory = ModelMemory(self.repository, settings, clock)
        self.hindsight: Hindsight | None = None
        self._enabled = settings.memory_mb > 0
        self._pinned = settings.pinned
        self._cloud = cloud
        self._cloud_lost = cloud_lost
        self._poll_s = poll_s
        self._clock = clock
        self._log = get_logger("models")
        self._background = BackgroundWorker(clock, "nearsight-models")
        self._downloads = NetworkDownloads(
            cloud,
            self.repository,
            self._background,
            clock,
            on_downloaded=self._downloaded,
            on_missing=self._list_soon,
        )
        self._lock = threading.Lock()
        self._forward_ms: dict[str, float] = {}
        self._outcomes: Counter[str] = Counter()
        self._accuracy = AccuracyBudget(settings.accuracy_loss)
        self._requests: Counter[str] = Counter()
        self._worth_it: frozenset[str] | None = None
        self._most_bytes = inf
        self._unlisted: set[str] = set()
        """Networks used by the cloud but not listed yet; downloaded after the next listing."""
        self._offered = dict(self.repository.manifests())
        self._tensors_only: frozenset[str] = frozenset()
        self._listed_s = -inf
        self._listing = False
        self._cloud_answered = False

    def start(self) -> None:
        """Start the background thread: list the cloud's networks periodically, and load pinned ones."""
        self._background.start()
        self._background.submit(self._list, name="list")
        self._background.submit(lambda: self.memory.keep_fitting(self._background))
        self._background.submit(self._look_back)

    def stop(self, grace_s: float) -> None:
        """Stop all threads, and unload the networks."""
        self._background.stop(grace_s)
        self.memory.close(grace_s)

    def knows(self, name: str) -> bool:
        """Whether there is a network of this name."""
        return name in self._offered

    def takes_photos(self, name: str) -> bool:
        """Whether it answers requests with photos; not if the cloud has an object catalogue of this name."""
        return name in self._offered and name not in self._tensors_only

    def admit(self, name: str, suits: Suits | None = None) -> Lease | Absent | None:
        """Decide who answers a request: this edge now (lease), this edge after a load, or (None) the cloud.

        Parameters
        ----------
        name : str
            Name of the network.
        suits : Suits, optional
            Which other networks may stand in; None: no network. The lease states whether one does.

        Raises
        ------
        NearsightError
            If neither edge nor cloud can answer: the reason why this edge cannot.
        """
        forward_ms = inf if self._cloud_lost() else self._expected_forward_ms(name)
        with self._lock:
            self._accuracy.requested(name)
            self._requests[name] += 1
        found: Lease | Absent | NearsightError
        try:
            found = self._request(name)
        except NearsightError as error:
            found = error
        if isinstance(found, Lease):
            self._count("here")
            return found
        here_ms = found.expected_ms if isinstance(found, Absent) else inf
        if here_ms < inf and not self._cloud_answered:
            forward_ms = inf  # this edge can load it, but it is not known whether the cloud exists
        stand_in, stand_in_ms, loss = self._stand_in(name, suits)
        how = soonest(here_ms, forward_ms, stand_in_ms)
        if how is Answerer.STAND_IN:
            lease = self._lease_of(stand_in)
            if lease is not None:
                lease.stands_in = True
                self._load_in_background(found)
                self._count("stood in")
                with self._lock:
                    self._accuracy.stood_in(name, loss)
                return lease
            how = soonest(here_ms, forward_ms, inf)  # it was evicted or removed meanwhile
        if how is Answerer.NEXT_TIER:
            self._load_in_background(found)
            self._count("forwarded")
            return None
        if isinstance(found, NearsightError):
            raise found
        self._count("waited")
        return found

    def forwarded(self, name: str, spent_ms: float) -> None:
        """Record the time of the cloud's answer to a request with this network."""
        with self._lock:
            before = self._forward_ms.get(name, spent_ms)
            self._forward_ms[name] = before + _NEWEST_WEIGHT * (spent_ms - before)
        if name not in self._offered or not self.repository.has(name):
            self._background.submit(lambda: self._used_by_cloud(name))

    def facts(self) -> Sequence[tuple[str, str]]:
        """Facts for the health report; empty if there are no networks."""
        if not self._offered and not self.repository.problems:
            return ()
        with self._lock:
            answered, forward_ms = dict(self._outcomes), dict(self._forward_ms)
        here = self.repository.manifests()
        names = (f"{name}{'' if name in here else ' (not downloaded)'}" for name in sorted(self._offered))
        counts = ", ".join(f"{count} {how}" for how, count in answered.items())
        times = ", ".join(f"{name} {ms:.0f} ms" for name, ms in sorted(forward_ms.items()))
        facts = [
            ("networks", ", ".join(names)),
            ("networks in memory", self.memory.state.why),
            ("network requests", counts or "none yet"),
        ]
        if times:
            facts.append(("answers of the cloud", times))
        if self.hindsight is not None:
            facts.append(("waiting for networks", self.hindsight.why))
        facts += [("downloading network", text) for text in self._downloads.progress]
        problems = {name: self.memory.problem(name) for name in here} | self.repository.problems
        facts += [(f"network {name}", f"cannot be loaded: {why}") for name, why in problems.items() if why]
        return facts

    def explanations(self) -> Sequence[tuple[str, str]]:
        """For each network by name: where it is, and who answers its requests."""
        resident, here = self.memory.state.resident, self.repository.manifests()
        return [
            (name, self._explained(name, resident.get(name), here.get(name)) + self._accuracy.why(name))
            for name in sorted(self._offered)
        ]

    def _explained(self, name: str, costs: ModelCosts | None, manifest: Manifest | None) -> str:
        forward_ms = self._expected_forward_ms(name)
        cloud = f"the cloud takes {forward_ms:.0f} ms"
        if name not in self._forward_ms:
            cloud = f"the cloud is assumed to take {forward_ms:.0f} ms"
        if costs is not None:
            return (
                f"in memory, {costs.size_bytes / 1e6:.1f} MB; executes in {costs.execution_ms:.1f} ms, "
                f"loads in {costs.load_ms:.0f} ms; {cloud}"
            )
        if manifest is None:
            return f"its file is not downloaded{self._why_not(name)}; {cloud}"
        if manifest.measured is None:
            return f"not in memory, not measured yet; {cloud}"
        measured, problem = manifest.measured, self.memory.problem(name)
        here_ms = measured.load_ms + measured.execution_ms
        who = "the cloud answers while it is loaded" if forward_ms < here_ms else "requests wait for the load"
        return (
            f"not in memory, where it would take {measured.memory_bytes / 1e6:.1f} MB; loads in "
            f"{measured.load_ms:.0f} ms, executes in {measured.execution_ms:.1f} ms; {cloud}: {who}"
            + (f"; {problem}" if problem else "")
        )

    @property
    def offers_any(self) -> bool:
        """Whether the cloud or this edge has networks."""
        return bool(self._offered)

    def limit(self, most_bytes: float, worth_it: frozenset[str] | None) -> None:
        """Limit the memory, and load other networks than ``worth_it`` only into free memory.

        Parameters
        ----------
        most_bytes : float
            ``inf``: the limit of the settings.
        worth_it : frozenset of str, optional
            Networks whose benefit justifies evictions. None: all.
        """
        self._worth_it = worth_it
        if most_bytes != self._most_bytes:
            self._most_bytes = most_bytes
            self.memory.limit(most_bytes)

    def uses(self) -> list[tuple[NetworkUse, int]]:
        """Time saved per request by each stored network if it is in memory [ms], and its number of requests.

        The time saved is that of a load, or of the cloud's answer if that is shorter. Networks that have not
        been measured are omitted, since they occupy no memory.
        """
        lost, resident, uses = self._cloud_lost(), self.memory.state.resident, []
        for name, manifest in self.repository.manifests().items():
            costs = resident.get(name) or (manifest.measured.costs if manifest.measured else None)
            if name in self._offered and costs is not None:
                forward_ms = inf if lost else self._expected_forward_ms(name)
                saved_ms = max(0.0, min(costs.load_ms, forward_ms - costs.execution_ms))
                use = NetworkUse(name, costs.size_bytes, saved_ms, pinned=name in self._pinned)
                uses.append((use, self._requests[name]))
        return uses

    def counts(self) -> dict[str, int]:
        """Number of requests by outcome: "here", "waited" for a load here, "stood in", "forwarded"."""
        with self._lock:
            return dict(self._outcomes)

    def _request(self, name: str) -> Lease | Absent:
        offered = self._offered.get(name)
        if offered is None:
            raise NotFound(f"there is no network {name!r}", advice="see `nearsight models list`")
        if not self._enabled:
            raise NotFound("this edge loads no networks", advice="set models.memory_mb")
        if not self.repository.holds(offered):
            self._downloads.enqueue(offered)
            if not self._cloud_lost() or not self.repository.has(name):  # an earlier file is better than none
                raise NotFound(
                    f"network {name!r} is not downloaded yet{self._why_not(name)}", advice="try again"
                )
        if not self._cloud_lost() and not self._is_worth_it(name):
            raise Overloaded(
                f"network {name!r} is not loaded, since it would evict networks that save more time",
                advice="try again",
            )
        return self.memory.request(name)

    def _stand_in(self, name: str, suits: Suits | None) -> tuple[str, float, float]:
        """Network that may stand in now, its time [ms], and its loss of accuracy; ``inf`` ms without one."""
        wanted, none = self._offered.get(name), ("", inf, 0.0)
        if suits is None or wanted is None or wanted.accuracy is None:
            return none
        losses = {
            other.name: max(0.0, wanted.accuracy - (other.accuracy or 0.0))
            for other in self.repository.manifests().values()
            if other.stands_in_for == name and self.memory.is_resident(other.name) and suits(wanted, other)
        }
        best = min(losses, key=losses.__getitem__, default="")
        with self._lock:
            if not best or not self._accuracy.allows(name, losses[best]):
                return none
        costs = self.memory.state.resident.get(best)
        return none if costs is None else (best, costs.execution_ms, losses[best])

    def _lease_of(self, name: str) -> Lease | None:
        """A lease of a network in memory; None if it is not there."""
        try:
            found = self.memory.request(name)
        except NearsightError:
            return None
        if isinstance(found, Lease):
            return found
        self.memory.load_in_background(found)
        return None

    def _load_in_background(self, found: Absent | NearsightError) -> None:
        """Load a network for later requests, if possible."""
        if isinstance(found, Absent):
            self.memory.load_in_background(found)

    def _is_worth_it(self, name: str) -> bool:
        if self._worth_it is None or name in self._worth_it or self.memory.is_resident(name):
            return True
        state, measured = self.memory.state, self.repository.get(name).measured
        return measured is None or measured.memory_bytes <= state.budget_bytes - state.used_bytes

    def _why_not(self, name: str) -> str:
        why = self._downloads.problem(name) or self.repository.problems.get(name)
        return f": {why}" if why else ""

    def _expected_forward_ms(self, name: str) -> float:
        return self._forward_ms.get(name, _FIRST_FORWARD_MS)

    def _count(self, how: str) -> None:
        with self._lock:
            self._outcomes[how] += 1

    # Methods that run on the background thread

    def _look_back(self) -> None:
        self._background.submit(self._look_back, name="look back", after_s=_LOOK_BACK_EVERY_S)
        self.hindsight = self.memory.look_back()

    def _downloaded(self, name: str) -> None:
        """Load a network whose file has been downloaded, for the next request."""
        self.memory.refresh()
        try:
            found = self.memory.request(name)
        except NearsightError as error:
            self._log.warning("network not loaded", network=name, error=str(error))
            return
        if isinstance(found, Lease):
            found.release()
        else:
            self.memory.load_in_background(found)

    def _used_by_cloud(self, name: str) -> None:
        """Download a network with which the cloud answered, or list the cloud's networks if it is unknown."""
        if not self._enabled:
            return
        if name in self._offered:
            self._downloads.enqueue(self._offered[name])
        else:
            self._unlisted.add(name)
            self._list_soon()

    def _list_soon(self) -> None:
        wait_s = self._listed_s + _LIST_AT_MOST_EVERY_S - self._clock.monotonic()
        self._background.submit(self._list, name="list", after_s=max(0.0, wait_s))

    def _list(self) -> None:
        if not self._listing:
            self._listing = True
            when_done(self._cloud.list_models(_TIMEOUT_S), self._background, _listing_of, self._listed)

    def _listed(self, listed: _Listing | NearsightError) -> None:
        self._listing = False
        self._listed_s = self._clock.monotonic()
        self._background.submit(self._list, name="list", after_s=self._poll_s)
        if isinstance(listed, NotFound):  # an older cloud, which does not serve networks
            listed = _Listing({}, frozenset(), frozenset())
        if isinstance(listed, NearsightError):
            return
        self._cloud_answered = True
        here = self.repository.manifests()
        offered, self._tensors_only, unreadable = listed
        self._offered = offered
        self.repository.remove_parts(kept=offered.values())
        for name, manifest in here.items():
            if name in unreadable:
                continue
            try:
                self._follow(manifest, offered.get(name))
            except SetupError as error:  # such as a full disk: the next network may make room
                self._log.warning("network not updated", network=name, error=str(error))
        used, self._unlisted = self._unlisted, set()
        for name in used.union(self._pinned):
            if name in offered and name not in here:
                self._downloads.enqueue(offered[name])
        self.memory.refresh()

    def _follow(self, manifest: Manifest, wanted: Manifest | None) -> None:
        """Remove, download or relabel a stored network, as the cloud's listing requires."""
        if wanted is None:
            self._log.info("network removed", network=manifest.name)
            self.repository.remove(manifest.name)
        elif wanted.checksum != manifest.checksum:
            self._downloads.enqueue(wanted)
        elif not wanted.same_network(manifest):
            self.repository.relabel(wanted)


class _Listing(NamedTuple):
    """The cloud's networks.

    Attributes
    ----------
    offered : dict of str to Manifest
        By name.
    tensors_only : frozenset of str
        Networks that do not answer requests with photos.
    unreadable : frozenset of str
        Networks whose manifests cannot be decoded, for example because the cloud is newer.
    """

    offered: dict[str, Manifest]
    tensors_only: frozenset[str]
    unreadable: frozenset[str]


def _listing_of(reply: Reply) -> _Listing:
    """Decode a listing."""
    found, tensors_only, unreadable = {}, set(), set()
    response: ListModelsResponse = reply.message
    for summary in response.models:
        try:
            manifest = Manifest.from_json(summary.manifest)
        except CorruptStore as error:
            get_logger("models").warning(
                "a network with an unreadable manifest is ignored", network=summary.name, error=str(error)
            )
            unreadable.add(summary.name)
            continue
        if manifest.name == summary.name:
            found[manifest.name] = manifest
            if summary.tensors_only:
                tensors_only.add(manifest.name)
    return _Listing(found, frozenset(tensors_only), frozenset(unreadable))
