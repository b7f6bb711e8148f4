"""Synchronisation with a catalogue: it is listed after a change of its revision, one listing at a time."""

from concurrent.futures import Future

import pytest
from structlog.testing import capture_logs

from nearsight.common.catalogue.answers import Listing
from nearsight.common.catalogue.catalogue_sync import CatalogueSync
from nearsight.common.clock import ManualClock
from nearsight.common.errors import Unavailable
from support.manual_background import ManualBackground


class ManualLister:
    """A tier whose answers a test provides."""

    def __init__(self) -> None:
        self.listings: list[Future[Listing]] = []
        self.looks = 0
        self.revision = 1

    def list_objects(self) -> Future[Listing]:
        self.listings.append(Future())
        return self.listings[-1]

    def get_revision(self) -> Future[int]:
        self.looks += 1
        answer: Future[int] = Future()
        answer.set_result(self.revision)
        return answer


class Scene:
    """A sync whose tier and time a test controls."""

    def __init__(self) -> None:
        clock = ManualClock(100.0)
        self.background = ManualBackground(clock)
        self.lister = ManualLister()
        self.listed: list[int] = []
        self.sync = CatalogueSync(
            "museum",
            self.lister.list_objects,
            self.background,
            clock,
            lambda listing: self.listed.append(listing.revision),
        )

    def answer(self, revision: int) -> None:
        self.lister.listings[-1].set_result(Listing({}, revision))
        self.background.run()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_only_a_changed_revision_leads_to_a_listing(scene: Scene) -> None:
    for revision in (3, 3, None):
        scene.sync.note_revision(revision)
    assert scene.lister.listings == []
    scene.sync.note_revision(4)
    scene.answer(4)
    scene.sync.note_revision(4)
    assert (len(scene.lister.listings), scene.listed) == (1, [4])


def test_listings_are_requested_one_at_a_time_with_a_pause_between_them(scene: Scene) -> None:
    scene.sync.sync()
    scene.sync.sync()
    assert len(scene.lister.listings) == 1
    scene.answer(1)
    scene.sync.sync()
    scene.background.advance(0.9)
    assert len(scene.lister.listings) == 1
    scene.background.advance(0.2)
    assert len(scene.lister.listings) == 2


def test_a_failed_listing_is_retried(scene: Scene) -> None:
    scene.sync.sync()
    scene.lister.listings[-1].set_exception(Unavailable("gone"))
    scene.background.advance(4.9)
    assert len(scene.lister.listings) == 1
    scene.background.advance(0.2)
    scene.answer(2)
    assert scene.listed == [2]


def test_a_closed_sync_requests_nothing_and_ignores_pending_answers(scene: Scene) -> None:
    scene.sync.sync()
    scene.sync.close()
    scene.answer(2)
    scene.sync.sync_soon()
    scene.background.advance(10.0)
    assert (len(scene.lister.listings), scene.listed) == (1, [])


def test_an_unavailable_tier_is_reported_once_per_outage(scene: Scene) -> None:
    def fail() -> None:
        scene.lister.listings[-1].set_exception(Unavailable("away"))
        scene.background.advance(60.0)

    def warnings() -> int:
        return sum(line["log_level"] == "warning" for line in lines)

    with capture_logs() as lines:
        scene.sync.sync()
        for _ in range(3):
            fail()
        assert warnings() == 1
        scene.answer(1)
        scene.sync.note_revision(2)
        scene.background.advance(60.0)
        fail()
        assert warnings() == 2


def test_polling_requests_the_revision_periodically(scene: Scene) -> None:
    scene.sync.poll(scene.lister.get_revision, 30.0)
    scene.background.advance(61.0)
    assert (scene.lister.looks, scene.lister.listings) == (2, [])
    scene.lister.revision = 2
    scene.background.advance(30.0)
    assert len(scene.lister.listings) == 1
