"""Complete devices with peers: real recognition and real sockets, and a tier with five exhibits."""

import time
from collections import Counter
from contextlib import ExitStack

from nearsight import Recognizer, RecognizerSettings
from nearsight.common.request.next_tiers import BreakerSettings
from nearsight.common.rpc.service import Service
from nearsight.device.cooperation.account import CooperationAccount
from nearsight.device.cooperation.analytics import PERIOD_S
from nearsight.device.peers.node import PeerNode
from nearsight.device.recognizer_settings import PrefetchSettings
from support.gallery import SETTINGS, exhibit_models
from support.peer_nodes import fast_settings
from support.predicting_edge import PredictingEdge
from support.waiting import LONG_S, wait_until

PREFETCH = PrefetchSettings(recognition=SETTINGS, timeout_s=LONG_S, refresh_s=0.001, watch_s=0.2)


def name(number: int) -> str:
    return f"exhibit-{number}"


class Scene:
    """A tier with five exhibits, and devices that are peers."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.devices: list[Recognizer] = []
        self.nodes: list[PeerNode] = []
        self.edge = PredictingEdge(exhibit_models(5))
        self.edge.delay_s = 0.05
        stack.callback(self.edge.stop)

    def device(
        self, *, edge: str | None = "", cloud: str | None = None, k_max: int = 40, **changes: object
    ) -> Recognizer:
        settings = RecognizerSettings(
            timeout_s=LONG_S,
            prefetch=PREFETCH.model_copy(update={"k_max": k_max}),
            breaker=BreakerSettings(cooldown_s=0.05, longest_cooldown_s=0.1, probe_timeout_s=LONG_S),
            peers=fast_settings(enabled=True, static=self._known(), **changes),
        )
        where = self.edge.endpoint if edge == "" else edge
        device = Recognizer(where, cloud, "museum", device_id=f"phone-{len(self.devices)}", settings=settings)
        self.devices.append(self._stack.enter_context(device))
        return device

    def cloud(self) -> PredictingEdge:
        """A tier behind the edge, with the same exhibits."""
        cloud = PredictingEdge(exhibit_models(5), tier="cloud")
        cloud.delay_s = 0.1
        self._stack.callback(cloud.stop)
        return cloud

    def stranger(self, *services: Service) -> PeerNode:
        """A peer that the test controls."""
        node = PeerNode(fast_settings(static=self._known()), device_id="stranger", services=services)
        node.start()
        self._stack.callback(node.stop, 0.0)
        self.nodes.append(node)
        return node

    def meet(self) -> None:
        """Wait until all devices and nodes are peers of each other."""
        others = len(self.devices) + len(self.nodes) - 1

        def met() -> bool:
            seen = [state.peers for device in self.devices if (state := device.cooperation_state)]
            return all(count == others for count in [*seen, *(len(node.peers()) for node in self.nodes)])

        wait_until(met, what="devices met")

    def _known(self) -> tuple[str, ...]:
        reports = [report for device in self.devices if (report := device.peers()) is not None]
        return (*(report.endpoint for report in reports), *(node.endpoint for node in self.nodes))


def account(device: Recognizer) -> CooperationAccount:
    state = device.cooperation_state
    assert state is not None
    return state.account


def counted(node: PeerNode, key: str) -> dict[str, int]:
    """Counts of all devices under a key in the current hour and the one before."""
    period = int(time.time() // PERIOD_S)
    sums: Counter[str] = Counter()
    for number in (period - 1, period):
        sums.update(node.store.counts(f"{key}/{number}").result(LONG_S))
    return dict(sums)


def holds(device: Recognizer, *numbers: int) -> None:
    wait_until(lambda: all(number in held(device) for number in numbers), what=f"{numbers} on the device")


def held(device: Recognizer) -> set[int]:
    explanation = device.explain()
    state = device.prefetch_state
    if explanation is None or state is None or state.k < len(explanation.object_ids):
        return set()
    return {int(object_id.removeprefix("exhibit-")) for object_id in explanation.object_ids}
