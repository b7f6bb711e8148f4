"""Executes a network at the edge or the cloud on tensors; implements `Recognizer.infer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nearsight.common.clock import Clock
from nearsight.common.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    InvalidMessage,
    NearsightError,
)
from nearsight.common.inference.tensors import Blob, Tensor, tensors_from_proto, tensors_to_proto
from nearsight.common.rpc.client import Hop
from nearsight.device.tiers import RemoteTier
from nearsight.protos.inference_pb2 import InferRequest, InferResponse


@dataclass(frozen=True, slots=True, eq=False)
class Inference:
    """The result of a network."""

    outputs: Mapping[str, Tensor]
    """By name, read-only."""
    answered_by: str
    """The tier that executed the network: "edge" or "cloud"."""
    version: int
    """Version of the network."""
    latency_ms: float
    """From the call to the answer."""
    hops: tuple[Hop, ...] = ()
    """Timings of each tier."""
    network: str = ""
    """The network that was executed instead of the requested one; empty: the requested one."""
    load_ms: float = 0.0
    """Part of `latency_ms` until the network was in the tier's memory; 0 if it was resident."""

    @property
    def output(self) -> Tensor:
        """The first output."""
        return next(iter(self.outputs.values()))


def infer(
    tiers: Mapping[str, RemoteTier],
    inputs: Tensor | Mapping[str, Tensor],
    *,
    exact: bool,
    timeout_s: float,
    share: float,
    clock: Clock,
) -> Inference:
    """Call one tier after the other until one answers.

    Parameters
    ----------
    tiers : mapping of str to RemoteTier
        In the order in which they are called.
    inputs : ndarray or mapping of str to ndarray
        The only input, or inputs by name.
    exact : bool
        Whether no other network may be executed instead.
    timeout_s : float
        For all tiers together.
    share : float
        Share of the remaining time that a tier may use if it is not the last one.
    clock : Clock
        The time.

    Raises
    ------
    InvalidArgument
        If the network does not accept these inputs.
    NearsightError
        The error of the last tier, if no tier answered.
    """
    named = inputs if isinstance(inputs, Mapping) else {"": inputs}
    for name, tensor in named.items():
        if not isinstance(tensor, np.ndarray):
            raise InvalidArgument(
                f"the input{f' {name!r}' if name else ''} is of type {type(tensor).__name__}",
                advice="give a NumPy array, or a dict of them",
            )
    messages, blobs = tensors_to_proto(named)
    began_s = clock.monotonic()
    error: NearsightError = DeadlineExceeded("no time was left to call a tier", advice="allow more time")
    for number, (name, tier) in enumerate(tiers.items(), 1):
        left_s = began_s + timeout_s - clock.monotonic()
        if left_s <= 0:
            break
        try:
            within_s = left_s if number == len(tiers) else left_s * share
            reply = tier.infer(InferRequest(inputs=messages, exact=exact), blobs, within_s).result()
            response: InferResponse = reply.message
            outputs = _outputs(response, reply.blobs, name)
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


def _outputs(response: InferResponse, blobs: Sequence[Blob], tier: str) -> Mapping[str, Tensor]:
    """The outputs of a tier; raises `InternalError` if they are invalid, which is no fault of the caller."""
    try:
        return tensors_from_proto(response.outputs, blobs)
    except InvalidMessage as error:
        raise InternalError(f"the {tier} sent an invalid answer: {error.message}") from error
