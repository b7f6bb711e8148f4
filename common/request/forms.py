"""Send the features or the image? Whatever is expected to be answered sooner, from device or edge.

Features cost the sender their extraction, unless it has them already, and save the receiver the same.
Which is smaller depends on the photo. All of it is measured: the link by `LinkEstimate`, the receiver's
time per form by what it reports.

A cloud looks a second time at a photo that it does not recognise at once, and needs the image for that. So
features that turn out unknown are followed by the image, and the sender waits for both. That is part of their
price: what the image would take, and the tiers behind the receiver once more, times the share of photos that
are unknown. Answers to either form tell that share, so that features are not avoided for ever after a crowd
took pictures of nothing in the catalogue.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nearsight.common.errors import InvalidArgument

FEATURES, IMAGE = "features", "image"
_NEWEST_WEIGHT = 0.1
_NEWEST_OUTCOME_WEIGHT = 0.05
_PRIOR_SIZES = (1_000.0, 50_000.0)
_PRIOR_WEIGHT = 0.5
_LEAST_PRIOR_WEIGHT = 0.01
_DECAY = 1.0 - 1.0 / 20


class LinkEstimate:
    """How long bytes take to the next tier and back, from what was sent before.

    A transfer takes latency + bytes / rate. One quotient of bytes and time would mix the two: small messages
    would make every link look slow. So a line is fitted to recent transfers: weighted linear regression of
    transfer time over size; weights fall with each transfer, so that the last twenty or so matter.

    Parameters
    ----------
    latency_ms, mbps : float
        Assumed at first. The assumption fades as transfers are measured, yet never wholly: the line stays
        defined while all transfers are of one size.

    Attributes
    ----------
    latency_ms : float
        Of a transfer without content.
    ms_per_byte : float
        Of its content.
    measured : bool
        Whether a transfer was observed.

    Raises
    ------
    InvalidArgument
        If an assumption is not positive and finite.
    """

    def __init__(self, latency_ms: float = 20.0, mbps: float = 20.0) -> None:
        if not (0 < latency_ms < math.inf and 0 < mbps < math.inf):
            raise InvalidArgument(f"a link needs a latency and a rate above 0, got {latency_ms}, {mbps}")
        self.latency_ms, self.ms_per_byte = latency_ms, 8e-3 / mbps
        self.measured = False
        # Sums of weight, size, time, size², size · time: of the assumption, then of what was measured.
        sizes = np.array(_PRIOR_SIZES)
        times = self.latency_ms + self.ms_per_byte * sizes
        self._prior = np.array([np.ones(2), sizes, times, sizes * sizes, sizes * times]).sum(axis=1)
        self._prior_weight = _PRIOR_WEIGHT
        self._measured = np.zeros(5)

    def observe(self, size_bytes: float, transfer_ms: float) -> None:
        """A message was on its way for so long, there and back, without the time that was computed on it.

        Times that are not positive and finite are ignored: two machines' clocks do not subtract exactly.
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
        if slope < 0:  # larger messages were faster by chance: size makes no difference
            slope, latency = 0.0, y / n
        elif latency < 0:
            slope, latency = xy / xx, 0.0
        self.ms_per_byte, self.latency_ms = slope, latency

    def transfer_ms(self, size_bytes: float) -> float:
        """Expected time of a message of this size."""
        return self.latency_ms + self.ms_per_byte * size_bytes


@dataclass(frozen=True, slots=True)
class Payload:
    """One form in which a photo could be sent."""

    form: str
    """"features" or "image"."""
    size_bytes: int
    """On the wire."""
    before_ms: float = 0.0
    """What the sender must still compute for it; 0 for features that are extracted already."""


@dataclass(frozen=True, slots=True)
class OffloadDecision:
    """What to send."""

    form: str
    """The chosen one."""
    expected_ms: Mapping[str, float]
    """Time to the answer with each form."""
    explored: bool
    """Whether it was chosen only to measure it again."""
    sizes: Mapping[str, int]
    """Bytes of each form."""
    latency_ms: float
    ms_per_byte: float
    """What was known of the link."""
    unknown_share: float
    """Share of the last photos that were unknown by their features."""
    link_measured: bool = True
    """Whether a transfer was measured, or the link is assumed."""

    @property
    def why(self) -> str:
        """The decision in one line, for a person."""
        forms = ", ".join(
            f"{form} {size / 1e3:.1f} kB: {self.expected_ms[form]:.1f} ms"
            for form, size in self.sizes.items()
        )
        reason = "to measure it again" if self.explored else "expected sooner"
        mbps = 8e-3 / self.ms_per_byte if self.ms_per_byte > 0 else math.inf
        assumed = "" if self.link_measured else " (assumed)"
        link = f"link {self.latency_ms:.1f} ms + {mbps:.1f} Mbit/s{assumed}"
        return f"{self.form} ({reason}); {forms}; {link}, {self.unknown_share:.0%} unknown"


class OffloadChoice:
    """Chooses between forms; learns from every answer.

    Parameters
    ----------
    link : LinkEstimate
        To the tier that is asked; used by nobody else from now on.
    receiver_ms : mapping of str to float
        Forms that exist, and how long the receiver is assumed to compute on each.
    explore_after : int
        A form that was not sent for so many choices may be tried again.
    explore_share : float
        If that costs no more than this share of the time that was spent since. A form that is far slower is
        tried that much more rarely; 0 never tries.

    Raises
    ------
    InvalidArgument
        If there is no form, or a number makes no sense.
    """

    def __init__(
        self,
        link: LinkEstimate,
        receiver_ms: Mapping[str, float],
        *,
        explore_after: int = 50,
        explore_share: float = 0.01,
    ) -> None:
        if not receiver_ms or not all(0 <= value < math.inf for value in receiver_ms.values()):
            raise InvalidArgument(f"every form needs a receiver's time that can be: {dict(receiver_ms)}")
        if explore_after < 1 or not 0 <= explore_share <= 1:
            raise InvalidArgument(
                f"exploring after {explore_after} choices at {explore_share} of the time cannot be"
            )
        self.unknown_share = 0.0
        """Share of the last photos that were unknown by their features."""
        self._link = link
        self._receiver_ms = dict(receiver_ms)
        self._explore_after = explore_after
        self._explore_share = explore_share
        self._behind_ms = 0.0
        # Choices since each form was last sent, and the time that they were expected to take.
        self._unsent = dict.fromkeys(receiver_ms, 0)
        self._spent_ms = 0.0

    def observe(self, form: str, size_bytes: int, transfer_ms: float, receiver_ms: float) -> None:
        """An answer came.

        Parameters
        ----------
        form, size_bytes
            What was sent.
        transfer_ms : float
            Round trip without the time that the tiers reported to have spent.
        receiver_ms : float
            Computing time that the receiver reported, without the tiers behind it.
        """
        self._link.observe(size_bytes, transfer_ms)
        if form in self._receiver_ms and 0 <= receiver_ms < math.inf:
            self._receiver_ms[form] += _NEWEST_WEIGHT * (receiver_ms - self._receiver_ms[form])

    def observe_outcome(self, *, unknown: bool, behind_ms: float = 0.0) -> None:
        """A photo has its answer; once per photo, however many messages that took.

        Parameters
        ----------
        unknown : bool
            Its features were unknown, even if the image after them was not; or, if only the image was sent,
            it was unknown.
        behind_ms : float
            How long the receiver waited for tiers behind it, for the last message.
        """
        if unknown and 0 <= behind_ms < math.inf:
            self._behind_ms += _NEWEST_WEIGHT * (behind_ms - self._behind_ms)
        self.unknown_share += _NEWEST_OUTCOME_WEIGHT * (unknown - self.unknown_share)

    def choose(self, payloads: Sequence[Payload]) -> OffloadDecision:
        """Choose among the forms that this photo can be sent in; of equally fast ones the first.

        A form that was not sent for long is tried again, if its trial is paid for by the time spent since.

        Raises
        ------
        InvalidArgument
            If there is nothing to choose from, or an unknown form.
        """
        _, expected_ms = self._prices(payloads)
        best = chosen = min(expected_ms, key=expected_ms.__getitem__)
        budget_ms = self._explore_share * self._spent_ms
        for form, form_ms in expected_ms.items():
            long_ago = self._unsent[form] >= self._explore_after
            if form != best and long_ago and form_ms - expected_ms[best] <= budget_ms:
                chosen = form
                break
        for form in expected_ms:
            self._unsent[form] += 1
        self._unsent[chosen] = 0
        explored = chosen != best
        self._spent_ms = 0.0 if explored else self._spent_ms + expected_ms[chosen]
        sizes = {}
        for payload in payloads:
            sizes[payload.form] = payload.size_bytes
        link = self._link
        return OffloadDecision(
            form=chosen,
            expected_ms=expected_ms,
            explored=explored,
            sizes=sizes,
            latency_ms=link.latency_ms,
            ms_per_byte=link.ms_per_byte,
            unknown_share=self.unknown_share,
            link_measured=link.measured,
        )

    def overhead(
        self, image_bytes: int, features_bytes: int, extraction_ms: float | None
    ) -> tuple[float, float]:
        """How much longer the best form of a photo takes [ms] than if its features were here.

        Parameters
        ----------
        image_bytes, features_bytes : int
            Size of both forms.
        extraction_ms : float, optional
            What its features would cost; None if only the photo can be sent.

        Returns
        -------
        (float, float)
            To the first answer; and to the last one, averaged over photos that are known at once and photos
            that are not.
        """
        payloads = Payload(FEATURES, features_bytes), Payload(IMAGE, image_bytes)
        first_ms, last_ms = self._prices(payloads)
        ready = min(last_ms, key=last_ms.__getitem__)
        sent, before_ms = IMAGE, 0.0
        if extraction_ms is not None and extraction_ms + last_ms[FEATURES] <= last_ms[IMAGE]:
            sent, before_ms = FEATURES, extraction_ms
        return (
            max(0.0, before_ms + first_ms[sent] - first_ms[ready]),
            max(0.0, before_ms + last_ms[sent] - last_ms[ready]),
        )

    def _prices(self, payloads: Sequence[Payload]) -> tuple[dict[str, float], dict[str, float]]:
        """Time to the first answer with each form, and to the last one, where another form may follow."""
        first_ms: dict[str, float] = {}
        for payload in payloads:
            receiver_ms = self._receiver_ms.get(payload.form)
            if receiver_ms is None:
                raise InvalidArgument(f"choose from {sorted(self._receiver_ms)}, not {payload.form}")
            transfer_ms = self._link.transfer_ms(payload.size_bytes)
            first_ms[payload.form] = payload.before_ms + transfer_ms + receiver_ms
        if not first_ms:
            raise InvalidArgument("there is no form to choose from")
        last_ms = dict(first_ms)
        if FEATURES in first_ms and IMAGE in first_ms:
            last_ms[FEATURES] += self.unknown_share * (first_ms[IMAGE] + self._behind_ms)
        return first_ms, last_ms
