"""The upload page, with a real catalogue in its process."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING

import pytest

from nearsight import LocalRecognizer
from support.examples import example
from support.pictures import broken_images, photo_jpeg, picture_jpeg

if TYPE_CHECKING:  # all workers import this module, and one of them uses Flask
    from flask.testing import FlaskClient


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    """The page in a browser; texts of the catalogue contain markup."""
    museum = tmp_path_factory.mktemp("museum")
    (museum / "references").mkdir()
    (museum / "references/1.jpg").write_bytes(picture_jpeg(1))
    (museum / "objects.csv").write_text("object_id,label,artist\n1,<b>Night</b>,<script>alert(1)</script>\n")
    with LocalRecognizer(museum) as recognizer:
        yield example("photo_upload").create_app(recognizer).test_client()


def upload(page: FlaskClient, photo: bytes) -> tuple[int, str]:
    answer = page.post("/", data={"image": (BytesIO(photo), "photo.jpg")})
    return answer.status_code, answer.text


def test_the_page_has_a_form(page: FlaskClient) -> None:
    assert '<input type="file" name="image"' in page.get("/").text


def test_a_photo_is_answered_with_label_and_metadata_as_text(page: FlaskClient) -> None:
    status, text = upload(page, photo_jpeg(1))
    assert status == 200
    assert "<h1>&lt;b&gt;Night&lt;/b&gt;</h1>" in text
    assert "<dt>artist</dt><dd>&lt;script&gt;alert(1)&lt;/script&gt;</dd>" in text


def test_an_unknown_photo_is_reported(page: FlaskClient) -> None:
    status, text = upload(page, photo_jpeg(2))
    assert (status, "Not in the catalogue." in text) == (200, True)


@pytest.mark.parametrize("broken", ["empty", "no image", "truncated", "bomb"])
def test_a_file_that_is_not_an_image_is_refused_with_the_reason(page: FlaskClient, broken: str) -> None:
    status, text = upload(page, broken_images()[broken])
    assert (status, '<p role="alert">' in text) == (400, True)


def test_a_form_without_a_file_and_one_that_is_too_large_are_refused(page: FlaskClient) -> None:
    form = "multipart/form-data; boundary=x"
    assert page.post("/", data=b"--x--", content_type=form).status_code == 400
    assert page.post("/", data=bytes(17 * 2**20), content_type=form).status_code == 413
