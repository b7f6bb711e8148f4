"""Queries and tiers of a request flow, controlled by a test."""

from collections.abc import Sequence
from concurrent.futures import Future

from nearsight.common.errors import NearsightError
from nearsight.common.recognition.results import RecognizedObject
from nearsight.common.request.answer import OBJECT, Answer, Lesson
from nearsight.common.request.effects import Ask, Effect, Encode, Extract, Finish, Standby, Work
from nearsight.common.request.flow import RequestFlow
from nearsight.common.request.forms import FEATURES, IMAGE, Payload
from nearsight.common.request.next_tiers import AskRules, BreakerSettings, NextTiers
from nearsight.common.rpc.envelope import Hop
from nearsight.device.query import DeviceQuery
from nearsight.device.tiers import RemoteTier
from support.recognition_server import EXHIBIT
from support.waiting import LONG_S

COMPUTING_MS = {IMAGE: 8.0, FEATURES: 6.0}
RULES = AskRules(0.6, BreakerSettings(failures=3, probe_timeout_s=1.0))


def tiers(*names: str, rules: AskRules = RULES) -> NextTiers:
    """Tiers without earlier requests."""
    return NextTiers(names or ("edge", "cloud"), rules, COMPUTING_MS, 800)


def learn(
    next_tiers: NextTiers,
    *,
    latency_ms: float,
    mbps: float,
    computed_ms: dict[str, float],
    sizes: dict[str, int],
    tier: str = "cloud",
) -> None:
    """Observe answers of a tier over a link with this latency and bandwidth, and with these compute times."""
    for number in range(200):
        form = IMAGE if number % 2 else FEATURES
        size = sizes[form] * (10 + number % 5) // 12
        round_trip_ms = latency_ms + size * 8e-3 / mbps + computed_ms[form]
        next_tiers.observe(
            tier, form, size, round_trip_ms, (Hop(tier, 0.0, computed_ms[form], 0.0, size, 100),)
        )


class PlainQuery:
    """A photo in some forms, some of which are not available yet."""

    def __init__(
        self,
        forms: Sequence[str] = (IMAGE,),
        *,
        has_image: bool = True,
        asked_again: bool = False,
        one_look: bool = False,
        unmade: Sequence[str] = (),
    ) -> None:
        self.forms = forms
        self.has_image = has_image
        self.asked_again = asked_again
        self.one_look = one_look
        self.unmade = set(unmade)
        self.reused = 0.0

    def payloads(self, features_bytes: int) -> Sequence[Payload]:
        """The available forms."""
        return [Payload(form, 1000) for form in self.forms]

    def missing(self, form: str) -> Work | None:
        """Work to create a form that is not available yet."""
        if form not in self.unmade:
            return None
        self.unmade.remove(form)
        return Encode() if form == IMAGE else Extract(800)

    def missing_features(self, count: int) -> Work | None:
        """Work to extract the features of a look, if they are not available yet."""
        return Extract(count) if FEATURES in self.unmade else None


class PlainStage:
    """A stage whose results the test provides; records what it learns."""

    grain = OBJECT

    def __init__(self, wants: int | None = 400) -> None:
        self.wants = wants
        self.learnt: list[tuple[Answer, Lesson | None]] = []

    def features_wanted(self, query: PlainQuery) -> int | None:
        """Number of features of a look; None: the stage does not look."""
        return self.wants

    def look(self, query: PlainQuery) -> RecognizedObject | None:
        """Always None: tests pass the result of the look to the flow."""
        return None

    def learn(self, query: PlainQuery, answer: Answer, lesson: Lesson | None) -> None:
        """Record the answer."""
        self.learnt.append((answer, lesson))


def asked(tier: RemoteTier, query: DeviceQuery, step: Ask) -> Answer:
    """The answer of a tier; raises its error."""
    outcome: Future[Answer | NearsightError] = Future()
    tier.ask(query, step, "t", outcome.set_result)
    answer = outcome.result(LONG_S)
    if isinstance(answer, NearsightError):
        raise answer
    return answer


HOP = Hop("edge", 1.0, 2.0, 4.0, 10, 20)
UNKNOWN = Answer(None, "edge", hops=(HOP,), sent_bytes=10, received_bytes=20)
FOUND = Answer(EXHIBIT, "edge", hops=(HOP,), sent_bytes=10, received_bytes=20)

Flow = RequestFlow[PlainQuery]


def new_flow(
    next_tiers: NextTiers | None = None,
    *stages: PlainStage,
    start_s: float = 0.0,
    timeout_s: float = 5.0,
    standby: Standby[PlainQuery] | None = None,
    only_here: bool = False,
) -> Flow:
    return RequestFlow(
        stages,
        next_tiers or tiers(),
        "device",
        start_s,
        start_s + timeout_s,
        standby=standby,
        only_here=only_here,
    )


def outcome(effect: Effect[PlainQuery] | None) -> Answer | NearsightError:
    assert isinstance(effect, Finish)
    return effect.outcome
