"""``nearsight museum``."""

from pathlib import Path

import cv2
import pytest
from typer.testing import CliRunner

from nearsight.common.errors import InvalidArgument
from nearsight.experiments.museum.cli import app
from nearsight.experiments.traces.requests import read_requests_csv
from nearsight.experiments.traces.visits import read_visits_csv
from support.disks import full_disk


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "my museum"
    arguments = ["generate", "--objects", "4", "--photos", "1", "--unknown", "1", "--workers", "1"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert f"{out}: 4 exhibits, 4 photos of them and 1 of others (seed 1" in result.stdout
    assert f"next: nearsight cloud ingest '{out}' " in result.stdout
    return out


def test_a_sheet_shows_the_photos(museum: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheets" / "sheet.png"
    result = CliRunner().invoke(
        app, ["sheet", str(museum), "--out", str(out), "--count", "3", "--columns", "2"]
    )
    assert result.exit_code == 0, result.output
    assert cv2.imread(str(out)).shape == (400, 400, 3)
    assert "3 of 5 pictures" in result.stdout


@pytest.mark.parametrize("name", ["sheet.doc", "sheet.pgm"], ids=["unknown", "without colours"])
def test_a_sheet_of_unusable_type_is_refused(museum: Path, tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(app, ["sheet", str(museum), "--out", str(tmp_path / name)])
    assert isinstance(result.exception, InvalidArgument)
    assert ".png" in result.exception.advice


def test_a_sheet_that_cannot_be_written_is_refused(museum: Path, tmp_path: Path) -> None:
    (tmp_path / "sheet.png").symlink_to("/dev/full")
    result = CliRunner().invoke(app, ["sheet", str(museum), "--out", str(tmp_path / "sheet.png")])
    assert isinstance(result.exception, OSError)


def test_a_sheet_on_a_full_disk_leaves_the_folder_as_it_was(museum: Path, tmp_path: Path) -> None:
    (tmp_path / "sheet.png").write_bytes(b"the sheet before")
    with full_disk():
        result = CliRunner().invoke(app, ["sheet", str(museum), "--out", str(tmp_path / "sheet.png")])
    assert isinstance(result.exception, OSError)
    assert result.exception.filename == str(tmp_path / "sheet.png")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"the sheet before"]


def test_traces_are_written_for_every_visitor(museum: Path) -> None:
    arguments = ["traces", str(museum), "--sections", "2", "--exhibits", "2", "--visitors", "3"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    visits = read_visits_csv(museum / "traces" / "visits.csv")
    assert {visit.exhibit for visit in visits} <= {"0001", "0002", "0003", "0004"}
    for visitor in {visit.visitor for visit in visits}:
        requests = read_requests_csv(museum / "traces" / f"{visitor}.csv")
        assert requests
        assert all((museum / request.image_path).is_file() for request in requests)


def test_more_exhibits_than_the_museum_has_are_refused(museum: Path) -> None:
    result = CliRunner().invoke(app, ["traces", str(museum), "--sections", "1"])
    assert isinstance(result.exception, InvalidArgument)
    assert "photos of 4 exhibits, but 44" in result.exception.message
