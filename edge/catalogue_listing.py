"""The catalogue as the edge knows it: which objects there are, in which versions, in step with the cloud."""

from __future__ import annotations

from collections.abc import Callable

from nearsight.common.catalogue.answers import Listing, listing_of
from nearsight.common.errors import NearsightError
from nearsight.common.logging import get_logger
from nearsight.common.rpc.client import Reply
from nearsight.edge.cloud_client import when_done
from nearsight.edge.services import EdgeServices

_AT_MOST_EVERY_S = 1.0


class CatalogueListing:
    """Lists one catalogue again when told that it changed; `now` and `outdated` are for any thread.

    Parameters
    ----------
    name : str
        Of the catalogue.
    listing : Listing
        As the cloud listed it first.
    services : EdgeServices
        Shared parts.
    timeout_s : float
        Longest wait for the cloud.
    listed : callable
        Told that there is a new listing.
    """

    def __init__(
        self,
        name: str,
        listing: Listing,
        services: EdgeServices,
        timeout_s: float,
        listed: Callable[[], None],
    ) -> None:
        self._name = name
        self._cloud = services.cloud
        self._background = services.background
        self._clock = services.clock
        self._timeout_s = timeout_s
        self._tell_listed = listed
        self._log = get_logger("listing").bind(catalogue=name)
        self._listing = listing
        self._last_sync_s = self._clock.monotonic()
        self._open = False
        self._closed = False

    @property
    def now(self) -> Listing:
        """The latest listing."""
        return self._listing

    def outdated(self) -> None:
        """Something does not fit the listing: `sync` soon."""
        self._background.submit(self.sync, name=f"sync {self._name}")

    def sync(self) -> None:
        """List the objects again, at most once per second."""
        wait_s = self._last_sync_s + _AT_MOST_EVERY_S - self._clock.monotonic()
        if wait_s > 0:
            self._background.submit(self.sync, name=f"sync {self._name}", after_s=wait_s)
            return
        if self._open or self._closed:
            return
        self._open = True
        future = self._cloud.list_objects(self._name, self._timeout_s)
        when_done(future, lambda outcome: self._background.submit(lambda: self._listed(outcome)))

    def close(self) -> None:
        """Ask no more."""
        self._closed = True

    def _listed(self, outcome: Reply | NearsightError) -> None:
        self._open = False
        self._last_sync_s = self._clock.monotonic()
        try:
            if isinstance(outcome, NearsightError):
                raise outcome
            listing = listing_of(outcome)
        except NearsightError as error:
            self._log.warning("objects not listed", error=str(error))
            return
        if not self._closed:
            self._listing = listing
            self._tell_listed()
