"""The adapted views that a device keeps: bounded per object and in all, own and shared ones apart."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from nearsight.common.errors import InvalidMessage
from nearsight.common.recognition.models import ObjectModel
from nearsight.device.adaptation.adapted_view import AdaptedView
from nearsight.device.adaptation.codec import view_from_bytes, view_to_bytes
from nearsight.device.adaptation.learning import Refusal, adds_something, refusal
from nearsight.device.adaptation.rules import AdaptationRules


@dataclass(slots=True)
class _OfObject:
    """Views of one version of one object; shared ones by the bytes that they came as."""

    version: int
    own: list[AdaptedView] = field(default_factory=list)
    shared: dict[bytes, AdaptedView] = field(default_factory=dict)


class AdaptedViews:
    """Keeps views; no threads, no clock.

    Parameters
    ----------
    rules : AdaptationRules
        What is kept.
    rng : Random
        Draws which of too many shared views are looked at: nobody can crowd out the others by being first.
    """

    def __init__(self, rules: AdaptationRules, rng: random.Random) -> None:
        self._rules = rules
        self._rng = rng
        self._objects: OrderedDict[str, _OfObject] = OrderedDict()
        self._refused: Counter[Refusal] = Counter()

    def __len__(self) -> int:
        """Views of all objects."""
        return sum(len(one.own) + len(one.shared) for one in self._objects.values())

    @property
    def size_bytes(self) -> int:
        """Of all views."""
        return sum(
            view.size_bytes for one in self._objects.values() for view in (*one.own, *one.shared.values())
        )

    @property
    def refused(self) -> Mapping[Refusal, int]:
        """How many views were not kept, and why."""
        return dict(self._refused)

    def own(self, model: ObjectModel) -> tuple[AdaptedView, ...]:
        """Views of exactly this version of the model that were learned here."""
        one = self._objects.get(model.object_id)
        return tuple(one.own) if one is not None and one.version == model.version else ()

    def shared(self, model: ObjectModel) -> tuple[AdaptedView, ...]:
        """Views of exactly this version of the model that came from others."""
        one = self._objects.get(model.object_id)
        return tuple(one.shared.values()) if one is not None and one.version == model.version else ()

    def _all(self, model: ObjectModel) -> tuple[AdaptedView, ...]:
        return self.own(model) + self.shared(model)

    def add_own(self, view: AdaptedView, model: ObjectModel) -> bool:
        """Keep a view that was learned here, in place of the oldest own one; True if it adds something."""
        one = self._of_version(model)
        if not self._passes(view, model, self._all(model)):
            return False
        one.own.append(view)
        del one.own[: -self._rules.own_views]
        return True

    def take_shared(self, items: Sequence[bytes], model: ObjectModel) -> bool:
        """Keep what others share of an object, as it is listed now; True if that changed something.

        Views that are kept stay as long as they are listed. Free places are filled with views drawn at
        random.
        """
        one = self._of_version(model)
        listed = set(items)
        gone = [item for item in one.shared if item not in listed]
        for item in gone:
            del one.shared[item]
        known = {view_to_bytes(view) for view in one.own} | one.shared.keys()
        fresh = sorted(item for item in listed if item not in known)
        changed = bool(gone)
        for item in self._rng.sample(fresh, min(len(fresh), self._rules.max_items)):
            if len(one.shared) >= self._rules.shared_views:
                break
            view = self._parsed(item)
            if view is not None and self._passes(view, model, self._all(model)):
                one.shared[item] = view
                changed = True
        return changed

    def forget(self, object_ids: Collection[str]) -> None:
        """Let the views of these objects go."""
        for object_id in object_ids:
            self._objects.pop(object_id, None)

    def _of_version(self, model: ObjectModel) -> _OfObject:
        """The object's views; those of another version, and of objects unused for longest, go."""
        one = self._objects.get(model.object_id)
        if one is None or one.version != model.version:
            one = self._objects[model.object_id] = _OfObject(model.version)
        self._objects.move_to_end(model.object_id)
        while len(self._objects) > self._rules.objects:
            self._objects.popitem(last=False)
        return one

    def _parsed(self, item: bytes) -> AdaptedView | None:
        try:
            return view_from_bytes(item, self._rules.max_item_bytes)
        except InvalidMessage:
            self._refused[Refusal.MALFORMED] += 1
            return None

    def _passes(self, view: AdaptedView, model: ObjectModel, others: Sequence[AdaptedView]) -> bool:
        why = refusal(view, model, self._rules)
        if why is None and not adds_something(view, model, others, self._rules):
            why = Refusal.NOTHING_NEW
        if why is not None:
            self._refused[why] += 1
        return why is None
