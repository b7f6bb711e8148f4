"""A catalogue in a database file, worked on without a daemon: the training is done here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nearsight.cloud.access import BatchOutcome
from nearsight.cloud.names import check_catalogue_name
from nearsight.cloud.store import (
    CatalogueInfo,
    CatalogueStore,
    RemoveOutcome,
    StoredObject,
    unknown_catalogue,
)
from nearsight.cloud.training import NewObject, ObjectTrainer
from nearsight.common.errors import InvalidArgument, NotFound


class DatabaseCatalogue:
    """See `CatalogueAccess`. A daemon that serves the file notices changes within a second or so.

    Parameters
    ----------
    store : CatalogueStore
        The file, opened; the caller closes it.
    catalogue : str
        Empty: the only one in the file.
    trainer : ObjectTrainer
        For what is put.
    """

    def __init__(self, store: CatalogueStore, catalogue: str, trainer: ObjectTrainer) -> None:
        self._store = store
        self._trainer = trainer
        self._given_name = catalogue

    @property
    def name(self) -> str:
        """Name of the catalogue.

        Raises
        ------
        InvalidArgument
            If the name cannot be used, or none was given and there are several catalogues.
        NotFound
            If none was given and there is none.
        """
        return check_catalogue_name(self._given_name or _only_one(self._store))

    def catalogues(self) -> tuple[CatalogueInfo, ...]:  # noqa: D102
        return self._store.catalogues()

    def objects(self) -> tuple[StoredObject, ...]:  # noqa: D102
        return self._store.objects(self.name)

    def stored(self) -> Mapping[str, str]:  # noqa: D102
        name = self.name
        try:
            objects = self._store.objects(name)
        except NotFound:
            return {}
        current = self._trainer.fingerprint
        return {item.object_id: item.content_hash for item in objects if item.training == current}

    def put(self, objects: Sequence[NewObject]) -> BatchOutcome:  # noqa: D102
        outcome = self._trainer.train(objects)
        if not outcome.trained:
            return BatchOutcome(rejected=outcome.rejected, skipped=outcome.skipped)
        stored = self._store.put(self.name, outcome.trained)
        return BatchOutcome(
            stored.added, stored.replaced, stored.unchanged, outcome.rejected, outcome.skipped
        )

    def finish(self) -> None:
        """Nothing to do: what was put is on disk."""

    def remove(self, object_ids: Sequence[str]) -> RemoveOutcome:  # noqa: D102
        return self._store.remove(self.name, object_ids)


def _only_one(store: CatalogueStore) -> str:
    names = [info.name for info in store.catalogues()]
    if not names:
        raise unknown_catalogue("", names)
    if len(names) > 1:
        raise InvalidArgument("no catalogue was named", advice=f"choose one of: {', '.join(names)}")
    return names[0]
