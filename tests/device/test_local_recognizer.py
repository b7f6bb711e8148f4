"""A catalogue in this process: answers are equal to those of a cloud with the same catalogue."""

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from nearsight import (
    DeadlineExceeded,
    Done,
    InvalidImage,
    LocalRecognizer,
    LocalSettings,
    NotFound,
    PrefetchSettings,
    Recognition,
    Recognizer,
    RecognizerSettings,
)
from nearsight.common.recognition.extraction import extract_features
from nearsight.common.recognition.images import load_colour, load_image
from nearsight.common.result_cache.settings import ResultCacheSettings
from nearsight.device.local_catalogue import INDEX_NAME
from support.cloud import SMALL_RECOGNITION, running_cloud
from support.pictures import (
    broken_images,
    jpeg,
    look_alike,
    photo_jpeg,
    photographed,
    picture,
    picture_jpeg,
)
from support.recognizers import Callbacks
from support.waiting import LONG_S, wait_until

SETTINGS = LocalSettings(recognition=SMALL_RECOGNITION, timeout_s=LONG_S)
OBJECTS = 6
"""Seeds; the pictures of the last two have the same centre."""


def alike(number: int) -> np.ndarray:
    """A picture with the same centre as others."""
    return look_alike(number, of=99, part=0.25)


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index."""
    folder = tmp_path_factory.mktemp("museum")
    for number in range(OBJECTS - 2):
        (folder / f"{number}.jpg").write_bytes(picture_jpeg(number))
    for number in range(OBJECTS - 2, OBJECTS):
        (folder / f"{number}.jpg").write_bytes(jpeg(alike(number)))
    (folder / "objects.csv").write_text("object_id,label,artist\n1,Water Lilies,Monet\n")
    LocalRecognizer(folder, settings=SETTINGS).close()
    return folder


@pytest.fixture
def recognizer(museum: Path) -> Iterator[LocalRecognizer]:
    with LocalRecognizer(museum, settings=SETTINGS) as opened:
        yield opened


def test_an_answer_is_complete_and_names_the_device(recognizer: LocalRecognizer) -> None:
    answer = recognizer.recognize_blocking(photo_jpeg(1))
    assert (answer.object_id, answer.label, answer.metadata) == ("1", "Water Lilies", {"artist": "Monet"})
    assert (answer.answered_by, answer.grain, answer.attempts) == ("device", "object", ())
    assert (answer.sent_bytes, answer.received_bytes) == (0, 0)
    assert answer.corners is not None
    assert 0 < answer.confidence <= 1
    (hop,) = answer.hops
    assert hop.tier == "device"
    assert 0 < hop.compute_ms <= answer.latency_ms
    assert recognizer.object_ids == {str(number) for number in range(OBJECTS)}


def test_unknown_is_an_answer(recognizer: LocalRecognizer) -> None:
    answer = recognizer.recognize_blocking(photo_jpeg(77))
    assert (answer.known, answer.answered_by, answer.grain) == (False, "device", "object")


def dark_photo(seed: int) -> bytes:
    """The picture of ``seed``, small and dark on a textured wall; only a second lookup recognises it."""
    photo = cv2.resize(picture(100 + seed), (480, 480))
    photo[10:130, 10:130] = cv2.resize(picture(seed), (120, 120), interpolation=cv2.INTER_AREA)
    return jpeg((photo // 20).astype(np.uint8))


def test_answers_are_those_of_a_cloud_with_the_same_catalogue(
    museum: Path, recognizer: LocalRecognizer
) -> None:
    photos = [photo_jpeg(number) for number in range(OBJECTS + 2)]
    photos += [photographed(alike(number)) for number in range(OBJECTS - 3, OBJECTS + 1)]
    photos += [photographed(look_alike(50, of=99, part=0.8)), *map(dark_photo, range(OBJECTS + 1))]
    sends_files = RecognizerSettings(prefetch=PrefetchSettings(enabled=False), timeout_s=LONG_S)
    looked_again = 0
    with (
        running_cloud(museum / INDEX_NAME, create=False) as cloud,
        Recognizer(None, cloud.endpoint, "references", settings=sends_files) as remote,
    ):
        for photo in photos:
            here, there = recognizer.recognize_blocking(photo), remote.recognize_blocking(photo)
            assert here.object == there.object
            one_look = recognizer._submit(photo, lambda _: None, None, one_look=True).result()
            looked_again += here.known and not one_look.known
    assert looked_again, "no photo needs the second look, so nothing shows that there is one"


def test_features_are_looked_at_as_well(recognizer: LocalRecognizer) -> None:
    features = extract_features(load_image(photo_jpeg(2)), 300)
    assert recognizer.recognize_blocking(features).object_id == "2"


def test_a_database_of_a_cloud_serves_too(museum: Path) -> None:
    with LocalRecognizer(museum / INDEX_NAME, "references", settings=SETTINGS) as recognizer:
        assert recognizer.recognize_blocking(photo_jpeg(3)).object_id == "3"


def test_callbacks_work_as_with_daemons(recognizer: LocalRecognizer, tmp_path: Path) -> None:
    callbacks = Callbacks()
    recognizer.recognize(photo_jpeg(0), callbacks)
    recognizer.recognize(tmp_path / "none.jpg", callbacks)
    recognizer.recognize(broken_images()["truncated"], callbacks)
    kinds = {type(outcome) for outcome in callbacks.wait(3)}
    assert kinds == {Recognition, NotFound, InvalidImage}


def test_a_stream_follows_a_picture_and_asks_the_catalogue(recognizer: LocalRecognizer) -> None:
    frame = load_colour(photo_jpeg(1)).pixels
    with recognizer.stream() as stream:
        assert stream.push(frame).done is Done.ASKED
        wait_until(lambda: stream.push(frame).recognition is not None)
        known = stream.push(frame)
    assert known.recognition is not None
    assert (known.recognition.object_id, known.recognition.answered_by) == ("1", "device")
    assert known.outline is not None


def test_the_result_cache_may_answer_first(museum: Path) -> None:
    results = SETTINGS.model_copy(update={"result_cache": ResultCacheSettings(enabled=True, beta=1.5)})
    with LocalRecognizer(museum, settings=results) as recognizer:
        grains = {recognizer.recognize_blocking(photo_jpeg(1)).grain for _ in range(6)}
    assert grains == {"object", "result"}


def test_the_error_of_a_short_deadline_does_not_mention_tiers(recognizer: LocalRecognizer) -> None:
    with pytest.raises(DeadlineExceeded, match=r"; allow more time$"):
        recognizer.recognize_blocking(photo_jpeg(1), timeout_s=1e-4)


def test_five_lines_are_enough(tmp_path: Path) -> None:
    (tmp_path / "Night.jpg").write_bytes(picture_jpeg(1))
    program = (
        "from nearsight import LocalRecognizer\n"
        "with LocalRecognizer(museum) as recognizer:\n"
        "    answer = recognizer.recognize_blocking(photo)\n"
        "    print(answer.label if answer.known else 'unknown')\n"
    )
    names: dict[str, object] = {"museum": tmp_path, "photo": photo_jpeg(1), "print": print}
    exec(compile(program, "five lines", "exec"), names)
    assert names["answer"].label == "Night"


def test_settings_of_recognition_hold(museum: Path) -> None:
    blind = LocalSettings(recognition=SMALL_RECOGNITION.model_copy(update={"min_inliers": 5000}))
    with LocalRecognizer(museum / INDEX_NAME, settings=blind) as recognizer:
        assert not recognizer.recognize_blocking(photo_jpeg(1), timeout_s=LONG_S).known
