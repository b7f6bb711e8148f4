"""Recognition data sets: pictures to train, photos to recognise, and the ground truth.

The loaders of all layouts produce these values; the code that uses them does not depend on the layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from nearsight.common.catalogue.reference_folder import Reference
from nearsight.common.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Query:
    """A photo and the object in it; None if that object is not in the catalogue."""

    path: Path
    object_id: str | None


@dataclass(frozen=True, slots=True)
class Dataset:
    """References, and queries about them.

    Raises
    ------
    InvalidArgument
        If an object id is not unique, or a query names an object that has no reference.
    """

    name: str
    references: tuple[Reference, ...]
    queries: tuple[Query, ...]
    remark: str = ""
    """How the labels were derived, in one line for the user; empty for a labels file and the layout of
    Stanford Mobile Visual Search."""

    def __post_init__(self) -> None:
        counts = Counter(reference.object_id for reference in self.references)
        twice = sorted(object_id for object_id, count in counts.items() if count > 1)
        if twice:
            raise InvalidArgument(
                f"data set {self.name!r} has more than one reference called {listed(twice)}",
                advice="further views of one object are named ID__2.jpg, ID__3.jpg, …",
            )
        missing = sorted({query.object_id for query in self.queries if query.object_id} - counts.keys())
        if missing:
            raise InvalidArgument(
                f"queries of data set {self.name!r} name objects without a reference: {listed(missing)}",
                advice="add the references, or leave object_id empty for what is not in the catalogue",
            )

    def with_prefix(self, prefix: str) -> Dataset:
        """The data set with ``prefix/`` before every object id, to combine data sets in one catalogue."""
        return replace(
            self,
            references=tuple(replace(ref, object_id=f"{prefix}/{ref.object_id}") for ref in self.references),
            queries=tuple(
                query if query.object_id is None else replace(query, object_id=f"{prefix}/{query.object_id}")
                for query in self.queries
            ),
        )


def merge_datasets(datasets: Iterable[Dataset], name: str) -> Dataset:
    """Merge the references and queries of several data sets; their ids must already be unique."""
    parts = tuple(datasets)
    return Dataset(
        name,
        tuple(reference for part in parts for reference in part.references),
        tuple(query for part in parts for query in part.queries),
    )


def listed(names: Iterable[object], limit: int = 5) -> str:
    """The first ``limit`` names and the number of the others, for messages."""
    every = [str(name) for name in names]
    shown = ", ".join(every[:limit])
    return shown if len(every) <= limit else f"{shown} and {len(every) - limit} more"
