"""Photos of standing visitors: rows, and caches that are replayed from them."""

import math
from pathlib import Path

import cv2
import numpy as np
import pytest

from nearsight.common.errors import InvalidArgument
from nearsight.common.result_cache.auto_refresh import AutoRefresh
from nearsight.experiments.museum.art.exhibit import render_reference
from nearsight.experiments.museum.camera.handheld import Filming, Stay, film
from nearsight.experiments.studies.approximate_keys.standing import (
    KINDS,
    LAYOUT,
    Photo,
    clips_in,
    exhibits,
    models_of_clips,
    photo_rows,
    play,
    real,
    similarity,
    stays_of,
    streams,
)

NEVER = AutoRefresh(math.inf)


def _stored(rows: list[dict[str, object]], cell: str = "a") -> list[dict[str, str]]:
    return [{"cell": cell, **{name: str(value) for name, value in row.items()}} for row in rows]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    stays = [Stay("0003", render_reference(1, 2), 2.0)]
    clip = film(stays, Filming(0.1, 5, difficulty=0.3), seed=2)
    return _stored([dict(row) for row in photo_rows(clip, exhibits(1, 4))])


def test_a_row_has_the_shown_object_the_answer_and_the_times(
    rows: list[dict[str, str]],
) -> None:
    standing = [row for row in rows if row["shown"]]
    assert {row["shown"] for row in standing} == {"0003"}
    assert sum(row["answered"] == "0003" for row in standing) > 0.8 * len(standing)
    assert all(len(row[LAYOUT].split()) == 8 for row in standing)
    assert all(float(row["extract_ms"]) > 0 for row in rows)


def test_keys_by_layout_serve_more_photos_of_a_standing_visitor_than_a_hash(
    rows: list[dict[str, str]],
) -> None:
    served = {kind: play(streams(rows, kind), NEVER).served for kind in KINDS}
    assert served[LAYOUT] > 0.4 * len(rows)
    assert served[LAYOUT] > served["hash"]


def test_similarity_caching_serves_the_requested_share(rows: list[dict[str, str]]) -> None:
    played, distance = similarity(rows, 0.5)
    assert played.photos == len(rows)
    assert played.served >= 0.5 * len(rows)
    assert distance > 0


def test_wrong_answers_and_disagreements_with_the_recogniser_are_counted() -> None:
    photos = [Photo("x", "x", ("k",)), Photo("x", "", ("k",)), Photo("y", "y", ("k",)), Photo("", "", ("k",))]
    played = play([photos], NEVER)
    assert (played.photos, played.served, played.wrong, played.disagreed) == (4, 3, 2, 3)


def test_unknown_photos_are_not_cached() -> None:
    assert play([[Photo("x", "", ("k",)), Photo("x", "", ("k",))]], NEVER).served == 0


def test_visitors_have_separate_keys_unless_they_share() -> None:
    rows = [{"cell": cell, "shown": "x", "answered": "x", LAYOUT: "k"} for cell in ("a", "b")]
    assert play(streams(rows, LAYOUT), NEVER).served == 0
    assert play(streams(rows, LAYOUT, shared=True), NEVER).served == 1


def test_every_nth_photo_is_used() -> None:
    rows = [{"cell": "a", "shown": str(number), "answered": "", LAYOUT: ""} for number in range(7)]
    assert [photo.shown for photo in streams(rows, LAYOUT, every=3)[0]] == ["0", "3", "6"]


def test_visitors_stay_at_exhibits_of_one_section() -> None:
    stays = stays_of(1, 4, 2, 3)
    assert len(stays) == 3
    assert all(0 < stay.dwell_s <= 60 for stay in stays)
    assert all(int(stay.object_id or 0) <= 44 for stay in stays)


def test_the_object_of_a_real_clip_is_its_first_frame(tmp_path: Path) -> None:
    video = cv2.VideoWriter(str(tmp_path / "one.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 10, (320, 320))
    for frame in film([Stay("", render_reference(1, 2), 1.0)], Filming(0.0, 10, (320, 320), 0.1), seed=1):
        if 0.8 <= frame.at_s < 1.8:
            video.write(frame.image)
    video.release()
    (clip,) = clips_in(tmp_path)
    (model,) = models_of_clips(tmp_path)
    rows = _stored([dict(row) for row in photo_rows(real(clip), [model])])
    assert len(rows) == 10
    assert {row["answered"] for row in rows} == {"one"} == {row["shown"] for row in rows}


def test_an_unreadable_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(np.zeros(100, np.uint8).tobytes())
    with pytest.raises(InvalidArgument, match="not a readable video"):
        next(real(tmp_path / "broken.mp4"))
