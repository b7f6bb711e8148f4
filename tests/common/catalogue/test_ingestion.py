import itertools
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from nearsight.common.catalogue import ingestion
from nearsight.common.catalogue.database_catalogue import DatabaseCatalogue
from nearsight.common.catalogue.ingestion import IngestionReport, ingest_folder
from nearsight.common.catalogue.store import CatalogueStore, PutOutcome
from nearsight.common.catalogue.training import NewObject, TrainingOutcome, train_objects
from nearsight.common.errors import InvalidArgument, NotFound, SetupError, Unavailable
from nearsight.common.recognition.settings import RecognitionSettings
from support.pictures import broken_images, picture_jpeg
from support.waiting import LONG_S

SETTINGS = RecognitionSettings(training_features=200)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "museum" / "references"
    images.mkdir(parents=True)
    for number in range(5):
        (images / f"{number:04}.jpg").write_bytes(picture_jpeg(number))
    return images.parent


def ingest(folder: Path, store: CatalogueStore, settings: RecognitionSettings = SETTINGS) -> IngestionReport:
    with closing(DatabaseCatalogue(store, "museum", settings)) as target:
        return ingest_folder(folder, target, threads=2)


def ids(store: CatalogueStore) -> list[str]:
    return [item.object_id for item in store.objects("museum")]


def test_a_folder_becomes_a_catalogue(folder: Path, store: CatalogueStore) -> None:
    (folder / "references" / "0003__2.jpg").write_bytes(picture_jpeg(33))
    (folder / "references" / "notes.txt").write_text("not an image")
    (folder / "objects.csv").write_text("\ufeffobject_id,label,artist\n0003,Water Lilies,Monet\n", "utf-8")
    report = ingest(folder, store)
    assert sorted(report.added) == ids(store) == ["0000", "0001", "0002", "0003", "0004"]
    assert (report.total, report.done, report.problems, report.interrupted) == (5, 5, [], False)
    models = {model.object_id: model for model in store.changes_since("museum", 0).written}
    assert models["0003"].label == "Water Lilies"
    assert models["0003"].metadata == {"artist": "Monet"}
    assert [len(models[name].views) for name in ("0003", "0001")] == [2, 1]
    assert models["0001"].label == "0001"


def test_the_image_folder_itself_may_be_given(folder: Path, store: CatalogueStore) -> None:
    (folder / "objects.csv").write_text("object_id,label\n0001,One\n")
    ingest(folder / "references", store)
    assert store.objects("museum")[1].label == "One"


def test_the_folder_above_the_images_need_not_be_readable(
    folder: Path, store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Path.iterdir

    def refused(path: Path) -> Iterator[Path]:
        if path == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    assert len(ingest(folder / "references", store).added) == 5


def test_a_table_may_have_empty_rows_and_spaces_as_spreadsheets_write_them(
    folder: Path, store: CatalogueStore
) -> None:
    (folder / "objects.csv").write_text("object_id, label , year\n0001, Lilies,1906\n,,\n , ,\n\n,\n")
    assert ingest(folder, store).problems == []
    model = store.changes_since("museum", 0).written[1]
    assert (model.object_id, model.label, model.metadata) == ("0001", "Lilies", {"year": "1906"})


def test_a_table_names_files_whose_letters_are_decomposed_as_on_macos(
    folder: Path, store: CatalogueStore
) -> None:
    decomposed = "Cafe\u0301"
    (folder / "references" / "0001.jpg").rename(folder / "references" / f"{decomposed}.jpg")
    (folder / "objects.csv").write_text("object_id,label\nCaf\xe9,Night\n", encoding="utf-8")
    assert ingest(folder, store).problems == []
    assert {one.object_id: one.label for one in store.objects("museum")}[decomposed] == "Night"


def test_broken_images_are_reported_and_the_others_ingested(folder: Path, store: CatalogueStore) -> None:
    broken = broken_images()
    for name, data in broken.items():
        (folder / "references" / f"bad {name}.png").write_bytes(data)
    report = ingest(folder, store)
    assert len(report.added) == 5
    assert sorted(report.rejected) == sorted(f"bad {name}" for name in broken)
    assert report.done == report.total == 5 + len(broken)
    assert all(problem.path is not None and problem.reason for problem in report.problems)
    assert ids(store) == sorted(report.added)


def test_an_object_is_ingested_with_its_usable_views(folder: Path, store: CatalogueStore) -> None:
    images = folder / "references"
    (images / "0002__2.jpg").write_bytes(b"broken")
    (images / "0002__3.jpg").write_bytes(picture_jpeg(22))
    report = ingest(folder, store)
    assert len(report.added) == 5
    assert [(problem.path, problem.rejected) for problem in report.problems] == [
        (images / "0002__2.jpg", False)
    ]
    assert store.objects("museum")[2].views == 2


def test_an_unreadable_file_is_reported(folder: Path, store: CatalogueStore) -> None:
    (folder / "references" / "dangling.jpg").mkdir()  # a folder that looks like an image is passed over
    (folder / "references" / "huge.jpg").write_bytes(bytes(20 * 2**20 + 1))
    report = ingest(folder, store)
    assert report.rejected == ["huge"]
    assert "the limit is 20971520" in report.problems[0].reason


def test_objects_listed_without_an_image_are_reported(folder: Path, store: CatalogueStore) -> None:
    (folder / "objects.csv").write_text("object_id,label\n0001,One\n0077,Lost\n")
    report = ingest(folder, store)
    assert report.rejected == ["0077"]
    assert report.done == report.total == 6


def test_a_second_run_trains_only_what_changed(
    folder: Path, store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(folder, store)
    (folder / "references" / "0001.jpg").write_bytes(picture_jpeg(91))
    (folder / "references" / "0009.jpg").write_bytes(picture_jpeg(92))
    trained: list[str] = []

    def recording(objects: Sequence[NewObject], settings: RecognitionSettings) -> TrainingOutcome:
        trained.extend(item.object_id for item in objects)
        return train_objects(objects, settings)

    monkeypatch.setattr("nearsight.common.catalogue.database_catalogue.train_objects", recording)
    report = ingest(folder, store)
    assert (report.added, report.replaced) == (["0009"], ["0001"])
    assert sorted(report.unchanged) == ["0000", "0002", "0003", "0004"]
    assert sorted(trained) == ["0001", "0009"]


def test_other_training_settings_train_everything_again(folder: Path, store: CatalogueStore) -> None:
    ingest(folder, store)
    report = ingest(folder, store, RecognitionSettings(training_features=100))
    assert len(report.replaced) == 5


def exchange(first: Path, second: Path) -> None:
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)


def test_pictures_are_exchanged_across_batches(
    folder: Path, store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH_OBJECTS", 1)
    ingest(folder, store)
    exchange(folder / "references" / "0000.jpg", folder / "references" / "0004.jpg")
    report = ingest(folder, store)
    assert (sorted(report.replaced + report.added), report.problems) == (["0000", "0004"], [])
    assert (report.done, report.total) == (5, 5)
    assert len(ingest(folder, store).unchanged) == 5


def test_pictures_are_renumbered_across_batches(
    folder: Path, store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH_OBJECTS", 2)
    ingest(folder, store)
    for number in range(5):
        (folder / "references" / f"{number:04}.jpg").write_bytes(picture_jpeg((number + 1) % 5))
    assert ingest(folder, store).problems == []
    assert len(ingest(folder, store).unchanged) == 5


def test_the_old_picture_stays_if_the_new_one_is_refused_and_no_other_object_claims_the_old_one(
    folder: Path, store: CatalogueStore
) -> None:
    ingest(folder, store)
    (folder / "references" / "0001.jpg").write_bytes(picture_jpeg(2))
    (folder / "references" / "0003.jpg").write_bytes(b"broken")
    report = ingest(folder, store)
    assert sorted(report.rejected) == ["0001", "0003"]
    assert all(one.reason.endswith("its earlier picture stays in use") for one in report.problems)
    assert {one.object_id: one.version for one in store.objects("museum")} == dict.fromkeys(ids(store), 1)
    (folder / "references" / "0009.jpg").write_bytes(picture_jpeg(1))
    report = ingest(folder, store)
    assert (report.added, sorted(report.rejected)) == (["0009"], ["0001", "0003"])
    assert ids(store) == ["0000", "0002", "0003", "0004", "0009"]


class RecordingTarget(DatabaseCatalogue):
    """A target that records the batches and can fail at one of them."""

    def __init__(self) -> None:
        self.finished = False
        self.batches: list[list[str]] = []
        self.failing_at = 10**9

    def stored(self) -> Mapping[str, str]:
        return {}

    def finish(self) -> None:
        self.finished = True

    def put(self, objects: Sequence[NewObject], *, allow_similar: bool = False) -> PutOutcome:
        del allow_similar
        self.batches.append([item.object_id for item in objects])
        if len(self.batches) >= self.failing_at:
            raise Unavailable("the cloud is gone")
        return PutOutcome(added=tuple(item.object_id for item in objects))


def test_progress_grows_to_the_total(
    folder: Path, store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH_OBJECTS", 2)
    seen: list[tuple[int, int]] = []
    ingest_folder(folder, RecordingTarget(), threads=2, progress=lambda *done: seen.append(done))
    assert seen[0] == (0, 5)
    assert seen[-1] == (5, 5)
    assert seen == sorted(seen)


def test_batches_are_bounded_in_number_and_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "BATCH_OBJECTS", 3)
    target = RecordingTarget()
    ingest_folder(folder, target, threads=1)
    assert sorted(map(len, target.batches)) == [2, 3]
    monkeypatch.setattr(ingestion, "BATCH_BYTES", 1)
    target = RecordingTarget()
    ingest_folder(folder, target, threads=1)
    assert [len(batch) for batch in target.batches] == [1] * 5
    assert target.finished


class CountingTarget(RecordingTarget):
    """Counts its concurrent batches; none ends before one more is waiting than there are threads."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.threads = threads
        self.running = self.most = 0
        self.lock = threading.Lock()
        self.all_run, self.one_waits = threading.Event(), threading.Event()

    def put(self, objects: Sequence[NewObject], *, allow_similar: bool = False) -> PutOutcome:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            if self.running == self.threads:
                self.all_run.set()
        assert self.all_run.wait(LONG_S)
        assert self.one_waits.wait(LONG_S)
        with self.lock:
            self.running -= 1
        return super().put(objects, allow_similar=allow_similar)


@pytest.mark.parametrize("threads", [1, 2])
def test_as_many_batches_run_at_once_as_there_are_threads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(ingestion, "BATCH_OBJECTS", 1)
    target = CountingTarget(threads)
    calls = itertools.count()

    def progress(done: int, total: int) -> None:
        if next(calls) > threads:  # one call before the first batch, then one after each new batch
            target.one_waits.set()

    ingest_folder(folder, target, threads=threads, progress=progress)
    assert target.most == threads
    assert len(target.batches) == 5


def test_a_target_that_fails_ends_the_ingestion_with_its_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH_OBJECTS", 1)
    target = RecordingTarget()
    target.failing_at = 2
    with pytest.raises(Unavailable, match="gone"):
        ingest_folder(folder, target, threads=1)
    assert len(target.batches) < 5
    assert not target.finished


def test_an_interruption_finishes_the_current_batches_and_is_reported(
    folder: Path, store: CatalogueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH_OBJECTS", 1)

    signals = [signal.SIGINT]

    def interrupt(done: int, total: int) -> None:
        if done == 2 and signals:
            signal.raise_signal(signals.pop())

    with closing(DatabaseCatalogue(store, "museum", SETTINGS)) as target:
        report = ingest_folder(folder, target, threads=1, progress=interrupt)
    assert report.interrupted
    assert 2 <= report.done < 5
    assert sorted(report.added) == ids(store)
    again = ingest(folder, store)
    assert sorted(again.unchanged) == sorted(report.added)
    assert len(ids(store)) == 5


class InterruptedTarget(RecordingTarget):
    """Sends Ctrl-C in each method that a list names, and waits there until the ingestion has noticed it."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self.methods = methods
        self.noticed = threading.Event()

    def put(self, objects: Sequence[NewObject], *, allow_similar: bool = False) -> PutOutcome:
        self.interrupt_in("put")
        return super().put(objects, allow_similar=allow_similar)

    def finish(self) -> None:
        self.interrupt_in("finish")
        super().finish()

    def interrupt_in(self, method: str) -> None:
        if method in self.methods:
            signal.raise_signal(signal.SIGINT)  # in this thread: it does not end a wait of the main thread
            assert self.noticed.wait(LONG_S)


@pytest.mark.parametrize("method", ["put", "finish"])
def test_an_interruption_is_noticed_while_the_target_works(folder: Path, method: str) -> None:
    target = InterruptedTarget(method)
    report = ingest_folder(folder, target, threads=1, interrupted=target.noticed.set)
    assert report.interrupted
    assert report.done == 5
    assert target.finished is (method == "finish")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_batch_that_was_being_started_at_the_interruption_is_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted_start(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("ingest"):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    monkeypatch.setattr(ingestion, "BATCH_OBJECTS", 1)
    target = RecordingTarget()
    report = ingest_folder(folder, target, threads=1)
    assert report.interrupted
    assert [report.added] == target.batches == [["0000"]]


def test_a_second_interrupt_has_the_handler_of_the_caller(folder: Path) -> None:
    target = InterruptedTarget("put")

    def interrupt() -> None:
        target.noticed.set()
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ingest_folder(folder, target, threads=1, interrupted=interrupt)


@pytest.fixture
def restored_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("restored_handler")
@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda _number, _frame: None])
def test_an_ignored_signal_and_the_handler_of_an_application_stay(
    folder: Path, handler: Callable[[int, object], None] | signal.Handlers
) -> None:
    def interrupt(done: int, total: int) -> None:
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, handler)
    report = ingest_folder(folder, RecordingTarget(), threads=1, progress=interrupt)
    assert (report.done, report.interrupted) == (5, False)
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_folder_is_ingested_in_any_thread(folder: Path, store: CatalogueStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(ingest, folder, store).result(LONG_S).done == 5


def test_folders_without_images_are_refused(tmp_path: Path, store: CatalogueStore) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "readme.txt").write_text("nothing here")
    for folder in (empty, tmp_path / "missing"):
        with pytest.raises(NotFound):
            ingest(folder, store)
    with pytest.raises(InvalidArgument, match="is a file"):
        ingest(empty / "readme.txt", store)
    assert store.catalogues() == ()


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ("id,label\n1,a\n", "no column object_id; begin with a header"),
        ("object_id;label\n1;a\n", "no column object_id; begin with a header of columns separated by commas"),
        ("object_id,label\n1\n", "line 2: 1 fields, but the header has 2"),
        ("object_id,label\n1,a,b\n", "line 2: 3 fields, but the header has 2; give each line as many"),
        ("object_id,label\n1,a\n1,b\n", "line 3: '1' occurs twice; write one line per object"),
        ("object_id,label\n1,a\n ,b\n", "line 3: object_id is empty; give the stem of its image"),
        ("object_id,year,year\n1,1906,1907\n", "line 1: the column 'year' occurs twice; give each"),
        ("", "no column object_id"),
    ],
)
def test_a_malformed_table_is_refused_with_its_line(
    folder: Path, store: CatalogueStore, table: str, complaint: str
) -> None:
    (folder / "objects.csv").write_text(table)
    with pytest.raises(InvalidArgument, match=complaint):
        ingest(folder, store)


@pytest.mark.parametrize("closed", ["references", "objects.csv"])
def test_a_folder_or_table_that_may_not_be_read_is_named(
    folder: Path, store: CatalogueStore, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    (folder / "objects.csv").write_text("object_id,label\n1,a\n")

    def refusing(method: Callable[..., object]) -> Callable[..., object]:
        def refused(path: Path, *arguments: object, **options: object) -> object:
            if path == folder / closed:
                raise PermissionError(13, "Permission denied", str(path))
            return method(path, *arguments, **options)

        return refused

    for method in ("iterdir", "open"):  # by hand, as root may read everything
        monkeypatch.setattr(Path, method, refusing(getattr(Path, method)))
    with pytest.raises(SetupError, match=f"cannot read .*{closed}; give access to it"):
        ingest(folder, store)


def test_two_files_of_one_view_are_refused(folder: Path, store: CatalogueStore) -> None:
    (folder / "references" / "0001.PNG").write_bytes(picture_jpeg(1))
    with pytest.raises(InvalidArgument, match="same view"):
        ingest(folder, store)
