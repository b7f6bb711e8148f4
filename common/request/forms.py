"""Chooses between features and image: sends the form with the earlier expected answer, from device or edge.

Features require an extraction by the sender, unless they are available, and save it at the receiver. Which
form is smaller depends on the photo. All costs are measured: the link by `LinkEstimate`, the receiver's time
per form from its reports.

A cloud takes a second look at a photo that it does not recognise at once, and needs the image for it. So the
image follows if features are unknown, and the sender waits for both. This is part of the cost of features:
the cost of the image and the time of the tiers behind the receiver, times the share of unknown photos. That
share is updated by answers to either form, so features are used again after many photos of objects outside
the catalogue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nearsight.common.text import percent

FEATURES, IMAGE = "features", "image"
_NEWEST_WEIGHT = 0.1
_NEWEST_OUTCOME_WEIGHT = 0.05
_PRIOR_LATENCY_MS, _PRIOR_MBPS = 20.0, 20.0
"""Assumption about a link before the first transfer."""
_PRIOR_SIZES = (1_000.0, 50_000.0)
_PRIOR_WEIGHT = 0.5
_LEAST_PRIOR_WEIGHT = 0.01
_DECAY = 1.0 - 1.0 / 20
EXPLORE_AFTER = 50
"""Number of choices after which an unused form may be tried again."""
EXPLORE_SHARE = 0.01
"""Maximum cost of such a trial as a share of the time spent since the last one. So a far slower form is tried
less often."""


class LinkEstimate:
    """Estimates the transfer time to the next tier and back from earlier messages.

    A transfer takes latency + bytes / rate. A single ratio of bytes to time would mix the two: small messages
    would make every link look slow. So a line is fitted to recent transfers by weighted linear regression of
    time over size. Weights decay with each transfer, so that about the last twenty matter.

    The assumption before the first transfer loses weight as transfers are measured. Its weight stays above
    0, so that the line is defined even if all transfers have the same size.

    Attributes
    ----------
    latency_ms : float
        Time of a transfer without content.
    ms_per_byte : float
        Additional time per byte of content.
    measured : bool
        Whether a transfer was measured.
    """

    def __init__(self) -> None:
        self.latency_ms, self.ms_per_byte = _PRIOR_LATENCY_MS, 8e-3 / _PRIOR_MBPS
        self.measured = False
        # Sums of weight, size, time, size² and size · time: first of the assumption, then of the
        # measurements.
        sizes = np.array(_PRIOR_SIZES)
        times = self.latency_ms + self.ms_per_byte * sizes
        self._prior = np.array([np.ones(2), sizes, times, sizes * sizes, sizes * times]).sum(axis=1)
        self._prior_weight = _PRIOR_WEIGHT
        self._measured = np.zeros(5)

    def observe(self, size_bytes: float, transfer_ms: float) -> None:
        """Add the transfer time of a message and its answer, excluding computing time.

        Times that are not positive and finite are ignored; they occur because the clocks of two machines
        differ.
        """
        if not (0 < transfer_ms < math.inf and 0 <= size_bytes < math.inf):
            return
        self.measured = True
        self._prior_weight = max(_LEAST_PRIOR_WEIGHT, _DECAY * self._prior_weight)
        new = np.array([1.0, size_bytes, transfer_ms, size_bytes * size_bytes, size_bytes * transfer_ms])
        self._measured = _DECAY * self._measured + new
        n, x, y, xx, xy = (self._prior_weight * self._prior + self._measured).tolist()
        slope = (n * xy - x * y) / (n * xx - x * x)
        latency = (y - slope * x) / n
        if slope < 0:  # larger messages were faster by chance: assume that size has no effect
            slope, latency = 0.0, y / n
        elif latency < 0:
            slope, latency = xy / xx, 0.0
        self.ms_per_byte, self.latency_ms = slope, latency

    def transfer_ms(self, size_bytes: float) -> float:
        """Expected transfer time of a message of this size, there and back [ms]."""
        return self.latency_ms + self.ms_per_byte * size_bytes


@dataclass(frozen=True, slots=True)
class Payload:
    """One form in which a photo can be sent."""

    form: str
    """`FEATURES` or `IMAGE`."""
    size_bytes: int
    """Size on the wire [bytes]."""
    before_ms: float = 0.0
    """Time that the sender needs to make it [ms]; 0 for features that are already extracted."""


class OffloadChoice:
    """Chooses between forms and learns from every answer.

    Parameters
    ----------
    receiver_ms : mapping of str to float
        The possible forms, with the receiver's assumed computing time for each [ms].
    """

    def __init__(self, receiver_ms: Mapping[str, float]) -> None:
        self.unknown_share = 0.0
        """Share of recent photos whose features were unknown."""
        self.expected_ms: Mapping[str, float] = {}
        """Expected time to the answer by form, at the last choice [ms]; empty before it."""
        self.explored = False
        """Whether the last form was chosen only to measure it again."""
        self._link = LinkEstimate()
        self._receiver_ms = dict(receiver_ms)
        self._payloads: Sequence[Payload] = ()
        self._chosen = ""
        self._behind_ms = 0.0
        # Choices since each form was last sent, and the expected time spent on them.
        self._unsent = dict.fromkeys(receiver_ms, 0)
        self._spent_ms = 0.0

    def observe(self, form: str, size_bytes: int, transfer_ms: float, receiver_ms: float) -> None:
        """Learn from an answer to a message.

        Parameters
        ----------
        form, size_bytes
            Form and size of the message.
        transfer_ms : float
            Round trip without the time that the tiers reported.
        receiver_ms : float
            Computing time that the receiver reported, without the tiers behind it.
        """
        self._link.observe(size_bytes, transfer_ms)
        if form in self._receiver_ms and 0 <= receiver_ms < math.inf:
            self._receiver_ms[form] += _NEWEST_WEIGHT * (receiver_ms - self._receiver_ms[form])

    def observe_outcome(self, *, unknown: bool, behind_ms: float = 0.0) -> None:
        """Learn from the outcome of a photo; called once per photo, even if it took two messages.

        Parameters
        ----------
        unknown : bool
            Whether its features were unknown, even if the image sent afterwards was recognised; or, if only
            the image was sent, whether that was unknown.
        behind_ms : float
            Time that the receiver waited for tiers behind it, for the last message.
        """
        if unknown and 0 <= behind_ms < math.inf:
            self._behind_ms += _NEWEST_WEIGHT * (behind_ms - self._behind_ms)
        self.unknown_share += _NEWEST_OUTCOME_WEIGHT * (unknown - self.unknown_share)

    def choose(self, payloads: Sequence[Payload]) -> str:
        """Choose one of the forms that are possible for this photo; the first one in a tie.

        A form that was not sent for long is tried again, if the cost of the trial is within the budget.
        """
        _, expected_ms = self._expected_times(payloads)
        best = chosen = min(expected_ms, key=expected_ms.__getitem__)
        budget_ms = EXPLORE_SHARE * self._spent_ms
        for form, form_ms in expected_ms.items():
            long_ago = self._unsent[form] >= EXPLORE_AFTER
            if form != best and long_ago and form_ms - expected_ms[best] <= budget_ms:
                chosen = form
                break
        for form in expected_ms:
            self._unsent[form] += 1
        self._unsent[chosen] = 0
        self._payloads, self._chosen, self.expected_ms = payloads, chosen, expected_ms
        self.explored = chosen != best
        self._spent_ms = 0.0 if self.explored else self._spent_ms + expected_ms[chosen]
        return chosen

    @property
    def why(self) -> str:
        """The last choice and the current estimates in one line, for display; empty before a choice."""
        if not self.expected_ms:
            return ""
        forms = ", ".join(
            f"{payload.form} {payload.size_bytes / 1e3:.1f} kB: {self.expected_ms[payload.form]:.1f} ms"
            for payload in self._payloads
        )
        reason, link = "to measure it again" if self.explored else "expected sooner", self._link
        mbps = 8e-3 / link.ms_per_byte if link.ms_per_byte > 0 else math.inf
        assumed = "" if link.measured else " (assumed)"
        rate = f"link {link.latency_ms:.1f} ms + {mbps:.1f} Mbit/s{assumed}"
        return f"{self._chosen} ({reason}); {forms}; {rate}, {percent(self.unknown_share)} unknown"

    def overhead(
        self, image_bytes: int, features_bytes: int, extraction_ms: float | None
    ) -> tuple[float, float]:
        """Additional time of a photo [ms] compared with one whose features are already extracted.

        Parameters
        ----------
        image_bytes, features_bytes : int
            Size of both forms.
        extraction_ms : float, optional
            Time to extract the features; None if only the image can be sent.

        Returns
        -------
        (float, float)
            Additional time to the first answer, and to the last answer as an average over known and unknown
            photos.
        """
        payloads = Payload(FEATURES, features_bytes), Payload(IMAGE, image_bytes)
        first_ms, last_ms = self._expected_times(payloads)
        ready = min(last_ms, key=last_ms.__getitem__)
        sent, before_ms = IMAGE, 0.0
        if extraction_ms is not None and extraction_ms + last_ms[FEATURES] <= last_ms[IMAGE]:
            sent, before_ms = FEATURES, extraction_ms
        return (
            max(0.0, before_ms + first_ms[sent] - first_ms[ready]),
            max(0.0, before_ms + last_ms[sent] - last_ms[ready]),
        )

    def _expected_times(self, payloads: Sequence[Payload]) -> tuple[dict[str, float], dict[str, float]]:
        """Expected time to the first answer by form, and to the last one, after a possible second message."""
        first_ms: dict[str, float] = {}
        for payload in payloads:
            transfer_ms = self._link.transfer_ms(payload.size_bytes)
            first_ms[payload.form] = payload.before_ms + transfer_ms + self._receiver_ms[payload.form]
        last_ms = dict(first_ms)
        if FEATURES in first_ms and IMAGE in first_ms:
            last_ms[FEATURES] += self.unknown_share * (first_ms[IMAGE] + self._behind_ms)
        return first_ms, last_ms
