"""Inference on tensors at the edge: executed here, or forwarded to the cloud if that is expected sooner."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from nearsight.common.background.futures import pending
from nearsight.common.clock import Clock
from nearsight.common.errors import NearsightError
from nearsight.common.inference.leases import Absent, Lease
from nearsight.common.inference.service import InferenceService
from nearsight.common.rpc.client import Reply
from nearsight.common.rpc.service import CallContext
from nearsight.edge.cloud_client import CloudClient, error_of_cloud
from nearsight.edge.inference.networks import EdgeNetworks
from nearsight.protos.inference_pb2 import InferRequest, InferResponse


class EdgeInferenceService(InferenceService):
    """Executes networks here, or forwards requests to the cloud.

    Parameters
    ----------
    networks : EdgeNetworks
        Decides who answers.
    cloud : CloudClient
        Receives forwarded requests.
    clock : Clock
        Measures the cloud's answers.
    """

    def __init__(self, networks: EdgeNetworks, cloud: CloudClient, clock: Clock) -> None:
        super().__init__(networks.memory, "edge")
        self._networks = networks
        self._cloud = cloud
        self._clock = clock

    def infer(self, request: InferRequest, context: CallContext) -> InferResponse | Future[InferResponse]:
        """Execute the network that the call names, or forward the call to the cloud."""
        name = context.catalogue
        suits = None if request.exact else self._memory.same_shapes
        found = self._networks.admit(name, suits) if self._networks.knows(name) else None
        if isinstance(found, Lease):
            with found:
                return self._executed(found, request, context)
        if isinstance(found, Absent):
            return self._memory.jobs.when_loaded(
                found,
                lambda lease: self._executed(lease, request, context),
                context.deadline.remaining_s(),
                otherwise=lambda: self._forward(request, context),
            )
        return self._forward(request, context)

    def _forward(self, request: InferRequest, context: CallContext) -> Future[InferResponse]:
        answer: Future[InferResponse] = pending()
        sent_s = self._clock.monotonic()
        blobs: Sequence[bytes | memoryview] = context.blobs
        reply = self._cloud.inference.infer.future(
            request,
            timeout_s=context.deadline.remaining_s(),
            blobs=blobs,
            catalogue=context.catalogue,
            trace_id=context.trace_id,
            client_id=context.client_id,
        )
        reply.add_done_callback(partial(self._replied, context, sent_s, answer))
        return answer

    def _replied(
        self, context: CallContext, sent_s: float, answer: Future[InferResponse], done: Future[Reply]
    ) -> None:
        spent_ms = (self._clock.monotonic() - sent_s) * 1e3
        context.next_tier_ms += spent_ms
        try:
            reply = done.result()
            response: InferResponse = reply.message
        except NearsightError as error:
            answer.set_exception(error_of_cloud(error))
            return
        self._networks.forwarded(context.catalogue, spent_ms)
        context.hops.extend(reply.hops)
        context.response_blobs.extend(reply.blobs)
        answer.set_result(response)
