"""Output of ``nearsight recognize`` for a photo, as text for people and as plain values for JSON."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from nearsight.common.errors import NearsightError, StatusCode
from nearsight.common.request.answer import NETWORK, RESULT
from nearsight.common.text import percent
from nearsight.device.recognition import Recognition


def latency_split(recognition: Recognition) -> dict[str, float]:
    """Parts of the latency in milliseconds, from the device outwards; their sum is the latency.

    Each tier has its own time (queue and work), each link in between has the round trip without the tier
    behind it, and each failed tier has the time spent on it.
    """
    *below, device = recognition.hops
    split = {"device": recognition.latency_ms - device.next_tier_ms}
    for attempt in recognition.attempts[:-1]:
        split[f"{attempt.tier} failed"] = attempt.elapsed_ms
    round_trip_ms = recognition.attempts[-1].elapsed_ms if recognition.attempts else 0.0
    caller = "device"
    for hop in reversed(below):
        own_ms = hop.queue_ms + hop.compute_ms
        split[f"network {caller}-{hop.tier}"] = max(0.0, round_trip_ms - own_ms - hop.next_tier_ms)
        split[hop.tier] = own_ms
        round_trip_ms, caller = hop.next_tier_ms, hop.tier
    if below and round_trip_ms:
        split[f"failed calls behind the {caller}"] = round_trip_ms
    return split


def text_report(photo: str, recognition: Recognition) -> list[str]:
    """A few lines for people. Labels and metadata in them may hold any characters."""
    split = ", ".join(f"{part} {ms:.1f}" for part, ms in latency_split(recognition).items())
    by = (
        f"{recognition.answered_by} (from an earlier answer)"
        if recognition.grain == RESULT
        else recognition.answered_by
    )
    took = f"{by} answered in {recognition.latency_ms:.1f} ms ({split})"
    traffic = f"{_size(recognition.sent_bytes)} sent, {_size(recognition.received_bytes)} received"
    lines = [f"{photo}: {_headline(recognition)}"]
    lines += [f"  {key}: {value}" for key, value in sorted(recognition.metadata.items())]
    if recognition.corners is not None:
        lines.append("  outline: " + " ".join(f"({x:.0f}, {y:.0f})" for x, y in recognition.corners))
    return [*lines, f"  {took}", f"  {traffic}"]


def line_report(photo: str, recognition: Recognition) -> list[str]:
    """One line for people, for a list of photos."""
    return [f"{photo}: {_headline(recognition)} ({recognition.answered_by}, {recognition.latency_ms:.1f} ms)"]


def summary(outcomes: Sequence[Recognition | NearsightError]) -> str:
    """The outcomes of several photos, in one line."""
    answers = [one for one in outcomes if not isinstance(one, NearsightError)]
    known = sum(answer.known for answer in answers)
    line = (
        f"{len(outcomes)} photos: {known} known, {len(answers) - known} unknown, "
        f"{len(outcomes) - len(answers)} failed"
    )
    if not answers:
        return line
    p50_ms = statistics.median(answer.latency_ms for answer in answers)
    tiers = Counter(answer.answered_by for answer in answers).most_common()
    return f"{line}; p50 {p50_ms:.1f} ms; {', '.join(f'{tier} answered {count}' for tier, count in tiers)}"


def _headline(recognition: Recognition) -> str:
    if not recognition.known:
        return "unknown"
    name = recognition.label or recognition.object_id
    identity = "" if recognition.grain == NETWORK else f" [{recognition.object_id}]"
    return f"{name}{identity}, confidence {percent(recognition.confidence)}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1000:.1f} KB" if size_bytes >= 1000 else f"{size_bytes} bytes"


def json_report(photo: str, outcome: Recognition | NearsightError) -> Mapping[str, object]:
    """Plain values, the same keys for every answer; errors have ``error``, ``advice`` and ``code``."""
    if isinstance(outcome, NearsightError):
        return {
            "photo": photo,
            "error": outcome.message,
            "advice": outcome.advice,
            "code": StatusCode(outcome.code).name,
        }
    return {
        "photo": photo,
        "known": outcome.known,
        "object_id": outcome.object_id,
        "label": outcome.label,
        "metadata": dict(sorted(outcome.metadata.items())),
        "confidence": outcome.confidence,
        "corners": outcome.corners,
        "answered_by": outcome.answered_by,
        "grain": outcome.grain,
        "latency_ms": outcome.latency_ms,
        "split_ms": latency_split(outcome),
        "hops": [asdict(hop) for hop in outcome.hops],
        "attempts": [
            {"tier": attempt.tier, "outcome": attempt.outcome.name, "elapsed_ms": attempt.elapsed_ms}
            for attempt in outcome.attempts
        ],
        "sent_bytes": outcome.sent_bytes,
        "received_bytes": outcome.received_bytes,
        "trace_id": outcome.trace_id,
    }
