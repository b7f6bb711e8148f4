"""Reasons of cache decisions: the service that returns them, and its client."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from google.protobuf.descriptor import ServiceDescriptor

from nearsight.common.errors import InvalidMessage, NotFound
from nearsight.common.object_cache.expected_latency import Explanation, LatencyTerms
from nearsight.common.operation.inquiry import Securities, ask_all
from nearsight.common.rpc.service import CallContext, Service
from nearsight.protos import explanation_pb2
from nearsight.protos.explanation_pb2 import (
    ExplainedDecision,
    ExplainRequest,
    ExplainResponse,
    Fact,
    LatencyTermsMessage,
)

_ROUNDING = 1e-6
_NO_CACHE = "this daemon has no cache decisions; name an edge or a device"


class ExplanationService(Service):
    """Explains the last decisions of a daemon.

    Parameters
    ----------
    explanations : callable
        The last decision of each catalogue, if there was one.
    networks : callable
        By name: the state of a network, and which tier answers for it.
    """

    descriptor: ClassVar[ServiceDescriptor] = explanation_pb2.DESCRIPTOR.services_by_name["Explanation"]

    def __init__(
        self,
        explanations: Callable[[], Sequence[Explanation]],
        networks: Callable[[], Sequence[tuple[str, str]]] = tuple,
    ) -> None:
        self._explanations = explanations
        self._networks = networks

    def explain(self, request: ExplainRequest, context: CallContext) -> ExplainResponse:
        """Return the last decisions about the catalogues that the caller may use, with their reasons."""
        del request
        sees = context.caller.sees
        return ExplainResponse(
            decisions=[explanation_to_proto(one) for one in self._explanations() if sees(one.catalogue)],
            networks=[Fact(name=name, value=why) for name, why in self._networks() if sees(name)],
        )


@dataclass(frozen=True, slots=True)
class DaemonExplanations:
    """The explanations of one daemon, or the error."""

    endpoint: str
    """The endpoint as given."""
    decisions: tuple[Explanation, ...] = ()
    """One per catalogue."""
    error: str = ""
    """Reason why there was no answer; empty if there was one."""
    networks: tuple[tuple[str, str], ...] = ()
    """By name: the state of a network, and which tier answers for it."""

    @property
    def absent(self) -> bool:
        """Whether no daemon answered; a daemon that has no cache decisions is not absent."""
        return self.error not in {"", _NO_CACHE}

    def to_json(self) -> dict[str, object]:
        """The fields; terms flat, facts as a mapping."""
        decisions = [asdict(one) | {"facts": dict(one.facts)} for one in self.decisions]
        facts = {"endpoint": self.endpoint, "error": self.error, "decisions": decisions}
        return facts | ({"networks": dict(self.networks)} if self.networks else {})


def ask_explanations(
    endpoints: Sequence[str], *, timeout_s: float, security: Securities = None
) -> tuple[DaemonExplanations, ...]:
    """Request the explanations of all daemons; see `ask_all`."""

    def read(endpoint: str, response: ExplainResponse) -> DaemonExplanations:
        networks = tuple((fact.name, fact.value) for fact in response.networks)
        return DaemonExplanations(
            endpoint, tuple(map(explanation_from_proto, response.decisions)), networks=networks
        )

    return ask_all(
        endpoints,
        ExplanationService.descriptor.methods_by_name["Explain"],
        ExplainRequest(),
        read,
        lambda endpoint, error: DaemonExplanations(
            endpoint, error=_NO_CACHE if isinstance(error, NotFound) else str(error)
        ),
        timeout_s=timeout_s,
        security=security,
    )


def table_of(explanation: Explanation) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings, and one row per point, sorted by features and size, with the chosen one marked.

    If no point has a number of features, as at an edge, that column is omitted.
    """
    chosen = explanation.chosen
    points = sorted(
        [(terms, False) for terms in explanation.alternatives] + [(chosen, True)],
        key=lambda point: (point[0].features, point[0].k),
    )
    features = ("features",) if any(terms.features for terms, _ in points) else ()
    ms = ("lookup ms", "recall", "P(cached)", "miss ms", "expected ms", "more ms")
    return ("", "k", *features, *ms), [
        (
            "*" if is_chosen else "",
            str(terms.k),
            *((str(terms.features or "-"),) if features else ()),
            f"{terms.lookup_ms:.2f}",
            f"{terms.recall:.3f}",
            f"{terms.cached_probability:.3f}",
            f"{terms.miss_ms:.1f}",
            f"{terms.expected_ms:.2f}",
            "" if is_chosen else f"{terms.expected_ms - chosen.expected_ms:+.2f}",
        )
        for terms, is_chosen in points
    ]


def explanation_to_proto(explanation: Explanation) -> ExplainedDecision:
    """Convert an explained decision to a message."""
    return ExplainedDecision(
        catalogue=explanation.catalogue,
        age_s=explanation.age_s,
        chosen=LatencyTermsMessage(**asdict(explanation.chosen)),
        alternatives=[LatencyTermsMessage(**asdict(terms)) for terms in explanation.alternatives],
        k_max=explanation.k_max,
        why=explanation.why,
        object_ids=explanation.object_ids,
        facts=[Fact(name=name, value=value) for name, value in explanation.facts],
    )


def explanation_from_proto(message: ExplainedDecision) -> Explanation:
    """Convert a message to an explained decision.

    Raises
    ------
    InvalidMessage
        If there is no chosen point, or a number is not finite or out of its range.
    """
    if not message.HasField("chosen"):
        raise InvalidMessage("an explained decision without a chosen point")
    if not 0 <= message.age_s < math.inf:
        raise InvalidMessage(f"a decision cannot be {message.age_s} s old")
    return Explanation(
        message.catalogue,
        message.age_s,
        _terms_from_proto(message.chosen),
        tuple(_terms_from_proto(terms) for terms in message.alternatives),
        message.k_max,
        message.why,
        tuple(message.object_ids),
        tuple((fact.name, fact.value) for fact in message.facts),
    )


def _terms_from_proto(message: LatencyTermsMessage) -> LatencyTerms:
    for name in ("lookup_ms", "miss_ms", "expected_ms"):
        if not 0 <= getattr(message, name) < math.inf:
            raise InvalidMessage(f"{name} must be finite and not negative, got {getattr(message, name)}")
    for name in ("recall", "cached_probability"):
        if not 0 <= getattr(message, name) <= 1 + _ROUNDING:
            raise InvalidMessage(f"{name} must be in [0, 1], got {getattr(message, name)}")
    return LatencyTerms(**{one.name: getattr(message, one.name) for one in fields(LatencyTerms)})
