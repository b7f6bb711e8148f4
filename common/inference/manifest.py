"""Manifest of a network: labels, preprocessing of photos, costs and checksum.

It is stored as a JSON file in the repository, and sent to edges as a field of a message.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from typing import Literal, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from nearsight.common.errors import CorruptStore, InvalidArgument
from nearsight.common.inference.measurement import Measurement
from nearsight.common.settings import first_error

Pixels = Literal["0..255", "0..1", "-1..1", "imagenet", "caffe"]
"""Range of the input's pixels. "0..255": as stored; "0..1": scaled; "-1..1": scaled and centred ("tf" in
Keras); "imagenet": scaled, then normalised with ImageNet's mean and standard deviation ("torch" in Keras);
"caffe": ImageNet's mean subtracted, channels in the order blue, green, red (as in Keras)."""

MAX_LABELS = 100_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """Metadata of one network."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    """Name of the network, and of the catalogue whose requests it answers."""
    version: int
    """Increases with each other file or manifest under this name."""
    size_bytes: int
    checksum: str
    """SHA-256 of the file, in hexadecimal."""
    labels: tuple[str, ...] = ()
    """Labels of the classes, in the order of the first output. Empty if the network is not a classifier."""
    pixels: Pixels = "0..1"
    """Preprocessing of a photo."""
    least_confidence: float = 0.5
    """Threshold of the confidence below which a photo counts as unknown."""
    accuracy: float | None = None
    """Accuracy that the network's owner states, in [0, 1]; None if not stated."""
    stands_in_for: str = ""
    """Name of the network for which this one may answer while that is being loaded; empty: none."""
    measured: Measurement | None = None
    """Costs on the machine of this repository; None if the network has not been measured."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.pixels not in get_args(Pixels):
            raise InvalidArgument(
                f"unknown range of pixels {self.pixels!r}", advice=f"use one of {', '.join(get_args(Pixels))}"
            )
        if self.stands_in_for:
            check_name(self.stands_in_for)
        if self.stands_in_for == self.name:
            raise InvalidArgument(
                f"network {self.name} cannot stand in for itself", advice="name the network that it replaces"
            )
        if (self.accuracy is None and self.stands_in_for) or not 0 <= (self.accuracy or 0.0) <= 1:
            raise InvalidArgument(
                f"network {self.name} has accuracy {self.accuracy} and stands in for "
                f"{self.stands_in_for or 'no other network'}",
                advice="state an accuracy from 0 to 1, also of the other network",
            )
        if len(self.labels) > MAX_LABELS or not 0 <= self.least_confidence <= 1:
            raise InvalidArgument(
                f"network {self.name} has {len(self.labels)} labels (at most {MAX_LABELS}) and a least "
                f"confidence of {self.least_confidence} (0 to 1)"
            )
        if not re.fullmatch(r"[0-9a-f]{64}", self.checksum) or self.size_bytes <= 0 or self.version < 1:
            raise InvalidArgument(f"the manifest of {self.name} is damaged")

    def same_network(self, other: Manifest | None) -> bool:
        """Whether another manifest differs at most in its measurement."""
        return other is not None and _all_but_costs(other) == _all_but_costs(self)

    def to_json(self, *, shared: bool = False) -> str:
        """Encode as JSON. With ``shared``, values that hold only for this machine are omitted."""
        # `asdict(self)` would copy every label, and an edge receives all manifests at each poll.
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["measured"] = asdict(self.measured) if self.measured and not shared else None
        return json.dumps(values, indent=None if shared else 1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Decode from JSON.

        Raises
        ------
        CorruptStore
            If the text is not a valid manifest.
        """
        try:
            return _STORED.validate_json(text, strict=True)
        except ValidationError as error:
            why = str(first_error(error))
        except InvalidArgument as error:
            why = str(error)
        raise CorruptStore(f"a manifest of a network is damaged: {why}", advice="add the model again")


_STORED = TypeAdapter(Manifest)
_all_but_costs = attrgetter(*(one.name for one in fields(Manifest) if one.name != "measured"))


def check_name(name: str) -> None:
    """Raise `InvalidArgument` unless a network may have this name, which is also used as a file name."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name!r} is not a valid name of a network",
            advice="use at most 100 letters, digits, '.', '_' and '-', a letter or digit first",
        )
