"""Which models are the right ones: digests that edge or cloud listed. Peers are believed nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from nearsight.common.catalogue_answers import Listing


@dataclass(frozen=True, slots=True)
class Voucher:
    """What a tier says of one object.

    Attributes
    ----------
    version : int
        That is to be used.
    digest : bytes
        Of its model.
    """

    version: int
    digest: bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    vouchers: MappingProxyType[str, Voucher]
    object_ids: tuple[str, ...]
    revision: int


class Vouchers:
    """The last listing. Any thread may read it, one thread changes it."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    @property
    def listed(self) -> bool:
        """Whether a tier has listed the catalogue."""
        return self._known is not None

    @property
    def revision(self) -> int:
        """Of the catalogue as it was listed; 0 before."""
        return self._known.revision if self._known is not None else 0

    @property
    def object_ids(self) -> tuple[str, ...]:
        """All objects of the catalogue."""
        return self._known.object_ids if self._known is not None else ()

    def of(self, object_id: str) -> Voucher | None:
        """What is vouched for; None if nothing is."""
        return self._known.vouchers.get(object_id) if self._known is not None else None

    def update(self, listing: Listing) -> None:
        """Take over a listing."""
        versions = listing.versions
        vouchers = {name: Voucher(versions[name], digest) for name, digest in listing.digests.items()}
        # Binding a name is atomic: readers see the old listing or the new one.
        self._known = _Known(MappingProxyType(vouchers), tuple(versions), listing.revision)
