"""Planned photos of visitors, as a pure function of visits and scenario."""

from dataclasses import replace
from pathlib import Path

from nearsight.experiments.demo.material import museum_folder, plan_photos
from nearsight.experiments.demo.scenario import FULL, QUICK
from nearsight.experiments.museum.settings import MuseumSettings
from nearsight.experiments.traces.visits import Visit

VISITS = (
    Visit("v1", "0003", 100.0, 160.0),
    Visit("v1", "0004", 162.0, 220.0),
    Visit("v2", "0007", 5.0, 90.0),
)


def test_each_visitor_takes_a_photo_per_second_for_the_length_of_the_scenario() -> None:
    planned = plan_photos(VISITS, replace(FULL, seconds=20.0, alone=10.0))
    assert {visitor: len(requests) for visitor, requests in planned.items()} == {"v1": 30, "v2": 30}
    assert [request.time_ms for request in planned["v2"]] == [5000 + 1000 * second for second in range(30)]


def test_visitors_take_no_photos_between_exhibits() -> None:
    planned = plan_photos(VISITS, replace(FULL, seconds=70.0, alone=0.0, unknown_share=0.0))
    times_s = [request.time_ms / 1000 for request in planned["v1"]]
    assert not [time_s for time_s in times_s if 160 <= time_s < 162]
    assert {request.object_id for request in planned["v1"]} == {"0003", "0004"}


def test_photos_show_the_exhibit_or_an_object_outside_the_catalogue() -> None:
    planned = plan_photos(VISITS, replace(FULL, seconds=60.0, alone=0.0, unknown_share=0.3))
    requests = [request for own in planned.values() for request in own]
    unknown = [request for request in requests if not request.object_id]
    assert 0.15 < len(unknown) / len(requests) < 0.45
    assert all(request.image_path.startswith("queries/unknown_") for request in unknown)
    known = [request for request in requests if request.object_id]
    assert all(request.image_path.startswith(f"visits/{request.object_id}_1") for request in known)


def test_the_plan_depends_on_the_seed_alone() -> None:
    assert plan_photos(VISITS, FULL) == plan_photos(VISITS, FULL)
    assert plan_photos(VISITS, FULL) != plan_photos(VISITS, replace(FULL, seed=2))


def test_a_quick_demo_has_a_museum_of_its_own_beside_a_full_one_of_the_same_objects(tmp_path: Path) -> None:
    for scenario in (FULL, replace(QUICK, objects=FULL.objects)):
        settings = MuseumSettings(scenario.objects, 1, 0, unknown_photos=scenario.unknown_photos)
        assert not museum_folder(tmp_path, settings).exists()
        museum_folder(tmp_path, settings).mkdir()
