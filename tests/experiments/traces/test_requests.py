"""Photos of stays: one per second, in order of time, of the right object."""

import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.traces.requests import PhotoRequest, assign_objects, photo_requests
from nearsight.experiments.traces.visits import Visit

PHOTOS = {"a": ["a1.jpg", "a2.jpg"], "b": ["b1.jpg"]}


def test_a_stay_gives_one_photo_per_second() -> None:
    requests = photo_requests([Visit("v", "b", 10.0, 13.4)], PHOTOS, np.random.default_rng(0))
    assert requests == {
        "v": tuple(PhotoRequest("b", "b1.jpg", time_ms) for time_ms in (10_000, 11_000, 12_000))
    }


def test_a_stay_without_duration_gives_one_photo() -> None:
    assert len(photo_requests([Visit("v", "b", 1, 1)], PHOTOS, np.random.default_rng(0))["v"]) == 1


def test_requests_of_each_visitor_are_in_order_of_time_with_all_photos() -> None:
    visits = [Visit("w", "a", 50, 90), Visit("v", "a", 5, 6), Visit("w", "b", 0, 20)]
    requests = photo_requests(visits, PHOTOS, np.random.default_rng(0))
    times = [request.time_ms for request in requests["w"]]
    assert times == sorted(times)
    assert len(times) == 60
    assert {request.image_path for request in requests["w"]} == {"a1.jpg", "a2.jpg", "b1.jpg"}


def test_exhibits_are_mapped_to_objects() -> None:
    visits = [Visit("v", "first", 0, 1), Visit("v", "second", 2, 3)]
    objects = assign_objects([visit.exhibit for visit in visits], ["b", "a"])
    requests = photo_requests(visits, PHOTOS, np.random.default_rng(0), objects=objects)
    assert [request.object_id for request in requests["v"]] == ["b", "a"]


def test_exhibits_without_photos_or_objects_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidArgument, match="'c' has no photo"):
        photo_requests([Visit("v", "c", 0, 1)], PHOTOS, rng)
    with pytest.raises(InvalidArgument, match="2 exhibits need as many objects"):
        assign_objects(["x", "y"], ["a"])
