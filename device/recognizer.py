"""The main class of the SDK: a device recognises objects itself if it can, else calls edge and cloud."""

from __future__ import annotations

import socket
import uuid
from asyncio import AbstractEventLoop
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from nearsight.common.clock import SYSTEM_CLOCK, Clock
from nearsight.common.errors import ConfigurationError
from nearsight.common.inference.tensors import Tensor
from nearsight.common.logging import get_logger
from nearsight.common.object_cache.expected_latency import Explanation
from nearsight.common.request.forms import FEATURES, IMAGE
from nearsight.common.request.next_tiers import AskRules, BreakerState, NextTiers
from nearsight.common.result_cache.stage import ResultCacheState
from nearsight.common.rpc.client import Channel
from nearsight.common.rpc.endpoints import DEFAULT_ENDPOINTS
from nearsight.common.rpc.security import ClientSecurity
from nearsight.device.base_recognizer import BaseRecognizer
from nearsight.device.callback_thread import Job
from nearsight.device.cooperation.account import CooperationState
from nearsight.device.engine import RecognizerObserver
from nearsight.device.forks import check_process
from nearsight.device.inference import Inference, infer
from nearsight.device.local_recognition import EDGE, LocalRecognition
from nearsight.device.peer_store import PeerStore
from nearsight.device.peers.report import PeersReport
from nearsight.device.prefetching.controller import PrefetchState
from nearsight.device.query import QueryContext
from nearsight.device.recognizer_settings import RecognizerSettings
from nearsight.device.tiers import RemoteTier

CLOUD = "cloud"
COMPUTING_MS = MappingProxyType({IMAGE: 8.0, FEATURES: 6.0})
"""Assumed computing time of tiers per photo, until they answer."""
_START_ADVICE = (
    "start `nearsight cloud` and `nearsight edge`, give their addresses, "
    "or use LocalRecognizer(FOLDER), which needs neither"
)


class LeftOut(Enum):
    """An argument that was not given."""

    LEFT_OUT = "left out"


LEFT_OUT = LeftOut.LEFT_OUT


@dataclass(frozen=True, slots=True)
class RecognizerSecurity:
    """Keys for each tier; None: unencrypted, which tiers accept on loopback only.

    Attributes
    ----------
    edge, cloud : ClientSecurity, optional
        This device's secret key and the public key of that tier.
    """

    edge: ClientSecurity | None = None
    cloud: ClientSecurity | None = None

    @property
    def own(self) -> str | Path | None:
        """The secret key of this device; used for devices nearby too, unless their settings name another."""
        return next((keys.secret_key_file for keys in (self.edge, self.cloud) if keys is not None), None)


class Recognizer(BaseRecognizer):
    """Recognises objects of one catalogue: on the device if it can, else at the edge, then at the cloud.

    `BaseRecognizer` describes the requests.

    Parameters
    ----------
    edge, cloud : str or None
        Endpoints such as ``tcp://10.0.0.5:7100``; None if there is no such tier. At least one is needed. If
        neither has an address, an omitted tier is that of this machine (`DEFAULT_ENDPOINTS`). If one has an
        address, an omitted tier is not used.
    catalogue : str
        The catalogue whose objects should be recognised. Required.
    device_id : str, optional
        Stable identity of this device; the edge learns from the sequence of its requests. Default: a new one
        per Recognizer.
    settings : RecognizerSettings
        Deadlines, limits, image size.
    security : RecognizerSecurity
        Keys; needed for tiers beyond loopback.
    observer : RecognizerObserver, optional
        Receives every outcome; for metrics.
    clock : Clock
        Must run in real time.

    Raises
    ------
    ConfigurationError
        If there is neither tier, or an endpoint or key cannot be used.
    NotFound, CorruptStore
        If the profile that the settings name does not exist, or is damaged.
    TypeError
        If no catalogue is given.
    """

    def __init__(  # noqa: PLR0913  applications set all options here, by name
        self,
        edge: str | LeftOut | None = LEFT_OUT,
        cloud: str | LeftOut | None = LEFT_OUT,
        catalogue: str = "",
        *,
        device_id: str | None = None,
        settings: RecognizerSettings | None = None,
        security: RecognizerSecurity | None = None,
        observer: RecognizerObserver | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not catalogue or not isinstance(catalogue, str):
            raise TypeError("Recognizer() needs the name of a catalogue, such as catalogue='museum'")
        keys = security or RecognizerSecurity()
        settings = settings or RecognizerSettings()
        self.settings = settings.model_copy(update={"peers": settings.peers.with_key(keys.own)})
        self.catalogue = catalogue
        self.device_id = device_id or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self.endpoints = used = _endpoints(edge, cloud)
        """Tier → its address, in the order in which they are called."""

        def connect(name: str) -> Channel:
            own = keys.edge if name == EDGE else keys.cloud
            return Channel(used[name], client_id=self.device_id, security=own, clock=clock)

        self._local: LocalRecognition | None = None
        recognition = self.settings.prefetch.recognition
        advice = _START_ADVICE if used.items() <= DEFAULT_ENDPOINTS.items() else ""
        rules = AskRules(self.settings.tier_share, self.settings.breaker, advice)
        self._next_tiers = NextTiers(used, rules, COMPUTING_MS, recognition.query_features)
        with ExitStack() as undo:
            if self._has_cache():
                self._local = LocalRecognition(
                    catalogue, self.device_id, tuple(used), connect, self._next_tiers, self.settings, clock
                )
                undo.callback(self._local.close)
            context = QueryContext(self.settings.upload, clock, recognition if self._local else None)
            self._tiers: dict[str, RemoteTier] = {}
            for name in used:
                tier = self._tiers[name] = RemoteTier(name, connect(name), catalogue)
                undo.callback(tier.close)
            stages = self._local.stages if self._local else ()
            observers = [one for one in (self._local, observer) if one is not None]
            super().__init__(
                self._tiers,
                context,
                stages,
                self.settings,
                self._next_tiers,
                observers,
                self._local.close if self._local else None,
            )
            undo.pop_all()
        if self._local is None and self.settings.result_cache.enabled:
            get_logger("device").warning(
                "answers are not reused, because this device does not track the catalogue",
                advice="give an edge and set prefetch.enabled, or set result_cache.enabled = false",
            )
        self._nearby = nearby = self._local.cooperation if self._local else None
        self._store = PeerStore(nearby.node, catalogue, self._deliver) if nearby else None

    def infer(
        self,
        inputs: Tensor | Mapping[str, Tensor],
        *,
        exact: bool = False,
        timeout_s: float | None = None,
    ) -> Inference:
        """Execute the network with the name of the catalogue, and wait for its result.

        Parameters
        ----------
        inputs : ndarray or mapping of str to ndarray
            The only input, or inputs by name, in the shapes and types of the network.
        exact : bool
            Whether no other network may be executed instead while this one is loaded; see
            `Inference.network`.
        timeout_s : float, optional
            As `recognize`.

        Raises
        ------
        InvalidArgument
            If the network does not accept these inputs; the message lists its inputs.
        NearsightError
            If no tier answered.
        RuntimeError
            As `recognize`.
        """
        check_process(self._process, type(self).__name__)
        allowed_s = self._allowed_s(timeout_s)
        share = self.settings.tier_share
        return infer(self._tiers, inputs, exact=exact, timeout_s=allowed_s, share=share, clock=self._clock)

    def breaker_states(self) -> Mapping[str, BreakerState]:
        """The circuit breaker of each tier: closed (healthy), cooling down, or being probed."""
        return self._next_tiers.states()

    def explain(self) -> Explanation | None:
        """The last cache decision of the device: its terms, and those of the alternatives.

        None if the device does not prefetch, or before the first object was recognised.
        """
        return self._local.explain() if self._local else None

    def why_empty(self) -> str:
        """Reason why the device holds no object, in one sentence for people; empty if it holds one."""
        if self._local is not None:
            return self._local.prefetcher.why_empty()
        if not self.settings.prefetch.enabled:
            return "the cache is disabled: prefetch.enabled is false"
        return "there is no edge and no device nearby that could predict the next objects"

    @property
    def prefetch_state(self) -> PrefetchState | None:
        """State and counters of the device's own cache; None if it does not prefetch."""
        return self._local.prefetcher.state if self._local else None

    @property
    def result_cache_state(self) -> ResultCacheState | None:
        """State and counters of the device's result cache; None if it has none."""
        result = self._local.result if self._local else None
        return result.state if result is not None else None

    @property
    def cooperation_state(self) -> CooperationState | None:
        """State of the cooperation with devices nearby; None if it is disabled."""
        return self._nearby.state if self._nearby else None

    def peers(self) -> PeersReport | None:
        """The devices nearby and their content; None if cooperation is disabled."""
        return self._nearby.report() if self._nearby else None

    @property
    def store(self) -> PeerStore:
        """The key-value store that the devices nearby host together, for the application.

        Raises
        ------
        ConfigurationError
            If this device does not share with devices nearby.
        RuntimeError
            As `recognize`.
        """
        check_process(self._process, type(self).__name__)
        if self._store is None:
            raise ConfigurationError(
                "this device does not share with devices nearby, so it has no store",
                advice="pass settings=RecognizerSettings(peers=PeerSettings(enabled=True)); "
                "prefetch.enabled must be true, and prefetch.k_max above 0",
            )
        return self._store

    def _deliver(self, job: Job, loop: AbstractEventLoop | None) -> None:
        """Run a callback of the store: as a method, so that the recognizer exists as long as its store."""
        self._callbacks.submit(job, loop)

    def _has_cache(self) -> bool:
        prefetch, peers = self.settings.prefetch, self.settings.peers
        if not (prefetch.enabled and prefetch.k_max):
            if peers.enabled:
                get_logger("device").warning(
                    "no sharing with devices nearby: this device does not recognise objects itself",
                    advice="set prefetch.enabled and prefetch.k_max, or peers.enabled = false",
                )
            return False
        return EDGE in self.endpoints or peers.enabled


def _endpoints(edge: str | LeftOut | None, cloud: str | LeftOut | None) -> Mapping[str, str]:
    """Tier → address, for the tiers in use.

    Raises
    ------
    ConfigurationError
        If there is none.
    """
    given = {EDGE: edge, CLOUD: cloud}
    used = {tier: address for tier, address in given.items() if isinstance(address, str) and address}
    if not used:
        used = {tier: DEFAULT_ENDPOINTS[tier] for tier, address in given.items() if address is LEFT_OUT}
    if not used:
        raise ConfigurationError(
            "a recognizer needs an edge or a cloud",
            advice="give the address of one, e.g. tcp://127.0.0.1:7100",
        )
    return used
