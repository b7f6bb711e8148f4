"""Plans from both forms of traces."""

from pathlib import Path

import numpy as np
import pytest

from nearsight.common.catalogue.reference_folder import Reference
from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.datasets.dataset import Dataset, Query
from nearsight.experiments.traces.plan import (
    PlannedPhoto,
    is_request_trace,
    load_photos,
    plan_from_requests,
    plan_from_visits,
)

DATASET = Dataset(
    "museum",
    tuple(Reference(object_id, object_id, (Path(f"{object_id}.jpg"),)) for object_id in ("a", "b")),
    (
        Query(Path("q/a1.jpg"), "a"),
        Query(Path("q/a2.jpg"), "a"),
        Query(Path("q/b1.jpg"), "b"),
        Query(Path("q/other.jpg"), None),
    ),
)
VISITS = "visitor,exhibit,start_s,end_s\nv1,a,100,103\nv1,b,105,107.5\nv2,b,0,4\n"


def visits(tmp_path: Path, text: str = VISITS) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(text)
    return path


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_visits_become_one_photo_per_second_of_stay_from_zero(tmp_path: Path) -> None:
    plan = plan_from_visits(visits(tmp_path), DATASET, rng(), visitor="v1")
    assert [(photo.at_s, photo.object_id) for photo in plan] == [
        (0.0, "a"),
        (1.0, "a"),
        (2.0, "a"),
        (5.0, "b"),
        (6.0, "b"),
    ]
    shown = {str(query.path): query.object_id for query in DATASET.queries}
    assert all(shown[str(photo.path)] == photo.object_id for photo in plan)


def test_the_same_seed_gives_the_same_plan(tmp_path: Path) -> None:
    first, second = (plan_from_visits(visits(tmp_path), DATASET, rng(), visitor="v1") for _ in range(2))
    assert first == second


def test_exhibits_outside_the_catalogue_are_mapped_to_objects_in_order(tmp_path: Path) -> None:
    path = visits(tmp_path, "visitor,poi,start_s,end_s\nv1,hall-2,0,1\nv1,hall-1,2,3\n")
    assert [photo.object_id for photo in plan_from_visits(path, DATASET, rng())] == ["b", "a"]


def test_exhibits_of_which_only_some_are_objects_are_refused(tmp_path: Path) -> None:
    path = visits(tmp_path, "visitor,exhibit,start_s,end_s\nv1,a,0,1\nv2,bb,2,3\n")
    with pytest.raises(InvalidArgument, match="no photo shows bb, but other exhibits are objects"):
        plan_from_visits(path, DATASET, rng(), visitor="v1")


def test_a_share_of_the_photos_shows_unknown_objects(tmp_path: Path) -> None:
    path = visits(tmp_path, "visitor,exhibit,start_s,end_s\nv1,a,0,1000\n")
    plan = plan_from_visits(path, DATASET, rng(), unknown_share=0.1)
    foreign = [photo for photo in plan if not photo.object_id]
    assert 60 < len(foreign) < 140
    assert {str(photo.path) for photo in foreign} == {"q/other.jpg"}


def test_a_plan_can_be_limited_to_a_duration(tmp_path: Path) -> None:
    plan = plan_from_visits(visits(tmp_path), DATASET, rng(), visitor="v1", seconds=2.0)
    assert [photo.at_s for photo in plan] == [0.0, 1.0]


@pytest.mark.parametrize(("visitor", "problem"), [(None, "name one"), ("v9", "no visitor 'v9'")])
def test_an_unknown_visitor_is_refused_with_the_known_ones(
    tmp_path: Path, visitor: str | None, problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"2 visitors: .*{problem}.*--visitor is one of v1, v2"):
        plan_from_visits(visits(tmp_path), DATASET, rng(), visitor=visitor)


def test_a_share_of_unknown_photos_needs_such_photos(tmp_path: Path) -> None:
    known_only = Dataset("museum", DATASET.references, DATASET.queries[:3])
    with pytest.raises(InvalidArgument, match="no photos of unknown objects"):
        plan_from_visits(visits(tmp_path), known_only, rng(), visitor="v1", unknown_share=0.5)


def test_requests_in_the_form_of_the_dissertation_become_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("objectID,imagePath,time_ms\na,q/a1.jpg,5000\n,q/other.jpg,6500\nb,q/b1.jpg,5500\n")
    assert plan_from_requests(path, tmp_path) == (
        PlannedPhoto(0.0, "a", tmp_path / "q/a1.jpg"),
        PlannedPhoto(0.5, "b", tmp_path / "q/b1.jpg"),
        PlannedPhoto(1.5, "", tmp_path / "q/other.jpg"),
    )


def test_the_header_of_a_trace_determines_its_form(tmp_path: Path) -> None:
    assert not is_request_trace(visits(tmp_path))
    (tmp_path / "t.csv").write_text("objectID,imagePath,time_ms\n")
    assert is_request_trace(tmp_path / "t.csv")
    (tmp_path / "of_r.csv").write_text('"objectID","imagePath","time_ms"\n')  # R quotes a header
    assert is_request_trace(tmp_path / "of_r.csv")
    with pytest.raises(NotFound, match="no trace"):
        is_request_trace(tmp_path / "none.csv")


def test_a_damaged_trace_is_refused_by_the_reader_of_visits(tmp_path: Path) -> None:
    path = tmp_path / "damaged.csv"
    path.write_text('"' + "visitor,exhibit,start_s,end_s\n" * 5000)
    assert not is_request_trace(path)
    with pytest.raises(InvalidArgument, match="not a CSV table"):
        plan_from_visits(path, DATASET, np.random.default_rng(1))


def test_a_trace_without_requests_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("objectID,imagePath,time_ms\n")
    with pytest.raises(InvalidArgument, match="no requests"):
        plan_from_requests(tmp_path / "t.csv", tmp_path)


def test_each_photo_is_read_once_and_a_missing_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"jpeg")
    plan = [PlannedPhoto(float(second), "a", tmp_path / "a.jpg") for second in range(3)]
    assert load_photos(plan) == {tmp_path / "a.jpg": b"jpeg"}
    with pytest.raises(NotFound, match=r"gone\.jpg.*--photos"):
        load_photos([PlannedPhoto(0.0, "a", tmp_path / "gone.jpg")])
