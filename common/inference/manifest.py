"""What is known of a network beside its file: labels, how it takes photos, what it costs.

It is JSON: a file in the repository, and a field of a message on the way to an edge.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal, get_args

from nearsight.common.errors import CorruptStore, InvalidArgument
from nearsight.common.inference.measurement import Measurement, measurement_from_dict

Pixels = Literal["0..255", "0..1", "-1..1", "imagenet", "caffe"]
"""Range of the input: as stored; scaled; scaled and centred ("tf" in Keras); with the mean and spread of
ImageNet ("torch"); minus its mean, blue first ("caffe")."""

MAX_LABELS = 100_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is known of one network."""

    name: str
    """Also of the catalogue that it answers for."""
    version: int
    """Grows with each other file or manifest under this name."""
    size_bytes: int
    checksum: str
    """Of the file; SHA-256 in hexadecimal."""
    labels: tuple[str, ...] = ()
    """Of the classes, in the order of the first output; none: it is no classifier."""
    pixels: Pixels = "0..1"
    """How a photo becomes its input."""
    least_confidence: float = 0.5
    """A label with less is no answer."""
    accuracy: float | None = None
    """As its owner states it, as a share of 1."""
    stands_in_for: str = ""
    """Name of the network for which this one may answer while that is loaded; empty: of none."""
    measured: Measurement | None = None
    """What it costs on the machine that this repository is on."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.pixels not in get_args(Pixels):
            raise InvalidArgument(
                f"pixels cannot be {self.pixels!r}", advice=f"use one of {', '.join(get_args(Pixels))}"
            )
        if self.stands_in_for:
            check_name(self.stands_in_for)
        if (self.accuracy is None and self.stands_in_for) or not 0 <= (self.accuracy or 0.0) <= 1:
            raise InvalidArgument(
                f"{self.name} stands in for {self.stands_in_for or 'none'} with accuracy {self.accuracy}",
                advice="state an accuracy from 0 to 1, also of the other network",
            )
        if len(self.labels) > MAX_LABELS or not 0 <= self.least_confidence <= 1:
            raise InvalidArgument(
                f"{len(self.labels)} labels (at most {MAX_LABELS}), least confidence {self.least_confidence} "
                "(0 to 1)"
            )
        if not re.fullmatch(r"[0-9a-f]{64}", self.checksum) or self.size_bytes <= 0 or self.version < 1:
            raise InvalidArgument(f"the manifest of {self.name} is damaged")

    def same_network(self, other: Manifest | None) -> bool:
        """Whether the other one is of the same network in the same version."""
        return other is not None and (other.version, other.checksum) == (self.version, self.checksum)

    def to_json(self, *, shared: bool = False) -> str:
        """As text; ``shared``: without what holds for this machine only."""
        # Not `asdict(self)`: it copies every label, and an edge is sent all manifests at each poll.
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["measured"] = asdict(self.measured) if self.measured and not shared else None
        return json.dumps(values, indent=None if shared else 1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """From text.

        Raises
        ------
        CorruptStore
            If it is no manifest.
        """
        try:
            values = json.loads(text)
            measured = values.pop("measured")
            labels = tuple(str(label) for label in values.pop("labels"))
            manifest = cls(**values, labels=labels)
            if measured is None:
                return manifest
            return replace(manifest, measured=measurement_from_dict(measured))
        except (ValueError, TypeError, KeyError, AttributeError, InvalidArgument) as error:
            raise CorruptStore(
                f"a manifest of a network is damaged: {error}", advice="add the model again"
            ) from error


def check_name(name: str) -> None:
    """Raise `InvalidArgument` unless a network may be called so: the name is that of a file, too."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"a network cannot be called {name!r}",
            advice="use at most 100 letters, digits, '.', '_' and '-', a letter or digit first",
        )
