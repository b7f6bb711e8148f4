"""Models of the twin as messages, for the parts of the SDK that read them: all of it but pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nearsight.common.catalogue.answers import Listing
from nearsight.common.recognition.codec import digest_of_message
from nearsight.common.recognition.models import ObjectModel
from nearsight.common.rpc.client import Reply
from nearsight.experiments.twin.cost_model import REQUEST_BYTES
from nearsight.protos.catalogue_pb2 import GetObjectModelsResponse, ObjectModelMessage, ObjectSummary


def listing_with_digests(models: Mapping[str, ObjectModel], revision: int) -> Listing:
    """A listing that vouches for the models as they travel here: without views."""
    entries = tuple(
        ObjectSummary(
            object_id=name, version=model.version, model_digest=digest_of_message(_message(model), ())
        )
        for name, model in models.items()
    )
    return Listing({name: model.version for name, model in models.items()}, revision, entries)


def answer_with(
    models: Sequence[ObjectModel],
    missing: Sequence[str],
    left_out: Sequence[str],
    revision: int,
    size_bytes: int,
) -> Reply:
    """An answer of a Catalogue service that was so long on the network."""
    answer = GetObjectModelsResponse(
        models=[_message(model) for model in models], missing=missing, left_out=left_out, revision=revision
    )
    return Reply(answer, (), (), REQUEST_BYTES, size_bytes)


def _message(model: ObjectModel) -> ObjectModelMessage:
    return ObjectModelMessage(object_id=model.object_id, label=model.label, version=model.version)
