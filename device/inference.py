"""Tensors through a network at the edge or the cloud: what `Recognizer.infer` does."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nearsight.common.clock import Clock
from nearsight.common.errors import DeadlineExceeded, InvalidArgument, NearsightError
from nearsight.common.inference.tensors import Blob, Tensor, tensors_from_proto, tensors_to_proto
from nearsight.common.rpc.call import message_of
from nearsight.common.rpc.client import Hop, Reply
from nearsight.protos.inference_pb2 import InferRequest, InferResponse


@dataclass(frozen=True, slots=True, eq=False)
class Inference:
    """What a network gave."""

    outputs: Mapping[str, Tensor]
    """By name, read-only."""
    answered_by: str
    """The tier that executed it: "edge" or "cloud"."""
    version: int
    """Of the network."""
    latency_ms: float
    """From the call to the answer."""
    hops: tuple[Hop, ...] = ()
    """What each tier spent."""
    network: str = ""
    """The network that stood in; empty: the one that was asked for."""
    load_ms: float = 0.0
    """Of this: until the network was in that tier's memory; 0 if it was there."""

    @property
    def output(self) -> Tensor:
        """The first output."""
        return next(iter(self.outputs.values()))


class InferringTier(Protocol):
    """Somebody who executes networks."""

    def infer(self, request: InferRequest, blobs: list[Blob], timeout_s: float) -> Future[Reply]:
        """Execute the network of the catalogue."""


def infer(
    tiers: Mapping[str, InferringTier],
    inputs: Tensor | Mapping[str, Tensor],
    *,
    exact: bool,
    timeout_s: float,
    share: float,
    clock: Clock,
) -> Inference:
    """Ask one tier after the other.

    Parameters
    ----------
    tiers : mapping of str to InferringTier
        In the order in which they are asked.
    inputs : ndarray or mapping of str to ndarray
        The only input, or inputs by name.
    exact : bool
        No other network may stand in.
    timeout_s : float
        For all of them.
    share : float
        Of the time left that a tier may use while another one is left.
    clock : Clock
        The time.

    Raises
    ------
    InvalidArgument
        If the network does not take these.
    NearsightError
        If no tier answered: why the last one did not.
    """
    named = inputs if isinstance(inputs, Mapping) else {"": inputs}
    for name, tensor in named.items():
        if not isinstance(tensor, np.ndarray):
            raise InvalidArgument(f"input {name!r} is a {type(tensor).__name__}, not an array of numpy")
    messages, blobs = tensors_to_proto(named)
    began_s = clock.monotonic()
    error: NearsightError = DeadlineExceeded("no time was left to ask", advice="allow more time")
    for number, (name, tier) in enumerate(tiers.items(), 1):
        left_s = began_s + timeout_s - clock.monotonic()
        if left_s <= 0:
            break
        try:
            within_s = left_s if number == len(tiers) else left_s * share
            reply = tier.infer(InferRequest(inputs=messages, exact=exact), blobs, within_s).result()
            response = message_of(reply, InferResponse)
            outputs = tensors_from_proto(response.outputs, reply.blobs)
        except InvalidArgument:
            raise
        except NearsightError as failed:
            error = failed
            continue
        latency_ms = (clock.monotonic() - began_s) * 1e3
        return Inference(
            outputs,
            response.answered_by or name,
            response.version,
            latency_ms,
            reply.hops,
            response.network,
            response.load_ms,
        )
    raise error
