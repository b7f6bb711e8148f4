"""Look-alikes: every new picture is compared with the catalogue before it is added.

The comparison finds two kinds. A *twin* is the same picture under another id. In one index, neither of them
would get votes, and both would be unknown. So the new object is rejected; or, if allowed, both are treated as
one object, and either is the answer. A *rival* is another picture with a common part: a face, a frame, the
banner of a series. A tier that holds both distinguishes them. A tier that lacks a rival must not answer with
the object unless the evidence is clear (`ObjectRecognizer`). So models contain their rivals, with the number
of inliers between them.

Rivals are mutual. The store maintains this when objects are added, changed or removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nearsight.common.catalogue.training import Rejection, TrainedObject
from nearsight.common.recognition.models import TWIN, ObjectModel
from nearsight.common.recognition.object_recognizer import ObjectRecognizer, Resemblance
from nearsight.common.text import percent

TWIN_SHARE = 0.15
"""`agreeing_share` from which two pictures count as the same. Measured with 52 pictures, the lowest value of
each variant: half or a third of the size 0.27, JPEG of quality 20 0.28, cropped to 80 % 0.18. The highest
value between 629 different pictures was 0.072, for two films of a series."""

_TWIN = (
    "its picture is the same as that of {twin!r} ({share} of the features agree): keep one of the two, "
    "or accept both (--allow-similar; in a program LocalSettings(allow_similar=True))"
)


def compare(
    objects: Sequence[TrainedObject],
    models: Mapping[str, ObjectModel],
    alike: Mapping[str, Mapping[str, Resemblance]],
    indexed: ObjectRecognizer,
    *,
    allow_similar: bool,
) -> tuple[list[TrainedObject], list[Rejection]]:
    """Find twins and rivals of new objects, in the catalogue and among the new objects.

    Parameters
    ----------
    objects : sequence of TrainedObject
        New objects; they replace those with the same ids.
    models : mapping of str to ObjectModel
        The catalogue.
    alike : mapping of str to mapping of str to Resemblance
        For each new object, the similar objects of ``indexed``. Computed by the caller, because this takes
        the most time.
    indexed : ObjectRecognizer
        An index of most of the models. Outdated models in it are ignored; missing ones are compared here.
    allow_similar : bool
        Whether to accept twins.

    Returns
    -------
    accepted, rejected
        Accepted objects with their rivals, and rejections. Of two twins among the new objects, the first is
        accepted. The stored model of a rejected object stays, so the others are compared with it, too.
    """
    new = {item.model.object_id: item.model for item in objects}
    others = {name: model for name, model in models.items() if name not in new}
    unindexed = ObjectRecognizer.build(
        [model for name, model in others.items() if indexed.models.get(name) is not model] + [*new.values()],
        indexed.settings,
    )
    accepted: dict[str, TrainedObject] = {}
    rejected: list[Rejection] = []
    for item in objects:
        name = item.model.object_id
        found = {
            other: resemblance
            for recognizer, there in (
                (indexed, alike[name]),
                (unindexed, unindexed.resembling(item.model, item.photos)),
            )
            for other, resemblance in there.items()
            if other in others and recognizer.models[other] is others[other]
        }
        twins = [other for other, resemblance in found.items() if resemblance.share >= TWIN_SHARE]
        if twins and not allow_similar:
            twin = max(twins, key=found.__getitem__)
            reason = _TWIN.format(twin=twin, share=percent(found[twin].share))
            rejected.append(Rejection(name, reason, twin))
            continue
        rivals = {other: TWIN if other in twins else one.inliers for other, one in found.items()}
        accepted[name], others[name] = _with_rivals(item, rivals), item.model
        for other in rivals.keys() & accepted.keys():
            accepted[other] = _with_rivals(accepted[other], {name: rivals[other]})
    if stay := [one for one in rejected if one.object_id in models]:
        rest = [item for item in objects if item.model.object_id not in {one.object_id for one in stay}]
        again, more = compare(rest, models, alike, indexed, allow_similar=allow_similar)
        return again, stay + more
    return [*accepted.values()], rejected


def _with_rivals(item: TrainedObject, rivals: Mapping[str, int]) -> TrainedObject:
    return replace(item, model=replace(item.model, rivals={**item.model.rivals, **rivals}))
