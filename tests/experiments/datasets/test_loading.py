"""Both layouts, several data sets in one folder, and errors."""

import shutil
from pathlib import Path

import pytest

from nearsight.common.catalogue.reference_folder import Reference
from nearsight.common.errors import InvalidArgument, NotFound
from nearsight.experiments.datasets.dataset import Dataset, Query, merge_datasets
from nearsight.experiments.datasets.loading import load_dataset, load_datasets


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"image")


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    folder = tmp_path / "plain"
    touch(folder, "references/a.jpg", "references/b.PNG", "references/b__2.jpeg", "references/notes.txt")
    touch(folder, "queries/1.JPG", "queries/2.jpg", "queries/.hidden.jpg")
    (folder / "labels.csv").write_text("query,object_id\n1.JPG,b\n2.jpg,\n")
    return folder


@pytest.fixture
def stanford(tmp_path: Path) -> Path:
    folder = tmp_path / "smvs"
    touch(
        folder / "books",
        "Reference/001.jpg",
        "Reference/002.jpg",
        "Canon/001.jpg",
        "Palm/002.JPG",
        "Palm/7.jpg",
    )
    touch(folder / "books", "readme.txt")
    touch(folder / "landmarks", "Query/004.jpg")
    touch(folder / "notes", "about.txt")
    return folder


def by_name(dataset: Dataset) -> dict[str, str | None]:
    return {f"{query.path.parent.name}/{query.path.name}": query.object_id for query in dataset.queries}


def test_a_labelled_folder_gives_references_with_their_views_and_labelled_queries(labelled: Path) -> None:
    dataset = load_dataset(labelled)
    views = {reference.object_id: [path.name for path in reference.paths] for reference in dataset.references}
    assert dataset.name == "plain"
    assert views == {"a": ["a.jpg"], "b": ["b.PNG", "b__2.jpeg"]}
    assert by_name(dataset) == {"queries/1.JPG": "b", "queries/2.jpg": None}


def test_labels_may_contain_paths_from_the_folder_of_the_data_set(labelled: Path) -> None:
    (labelled / "labels.csv").write_text("query,object_id\nqueries/1.JPG,b\nqueries/2.jpg,a\n")
    assert by_name(load_dataset(labelled)) == {"queries/1.JPG": "b", "queries/2.jpg": "a"}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("query,object_id\n1.JPG,b\n2.jpg,\ngone.jpg,a\n", r"gone\.jpg' \(line 4\)"),
        ("query,object_id\n1.JPG,b\n", "no row for 2.jpg"),
        ("query,object_id\n1.JPG,b\n2.jpg,nobody\n", "nobody"),
        ("query,object_id\n1.JPG,b\n1.JPG,a\n2.jpg,\n", "line 3: 1.JPG has a label already"),
        ("photo;object\n", "line 1: the header is"),
        ("query,object_id\n1.JPG\n", "line 2: not 2 fields"),
    ],
)
def test_wrong_labels_are_reported_with_their_place(labelled: Path, labels: str, expected: str) -> None:
    (labelled / "labels.csv").write_text(labels)
    with pytest.raises((InvalidArgument, NotFound), match=expected) as caught:
        load_dataset(labelled)
    assert caught.value.advice


def test_labels_that_are_not_utf8_are_refused(labelled: Path) -> None:
    (labelled / "labels.csv").write_bytes(b"query,object_id\n\xff\xfe,b\n")
    with pytest.raises(InvalidArgument, match="UTF-8"):
        load_dataset(labelled)


@pytest.mark.parametrize("part", ["references", "queries"])
def test_a_missing_part_is_named(labelled: Path, part: str) -> None:
    (labelled / part).rename(labelled / "elsewhere")
    with pytest.raises(NotFound, match=f"has no {part}") as caught:
        load_dataset(labelled)
    assert "labels.csv" in caught.value.advice


def test_without_labels_the_names_of_photos_identify_their_objects(labelled: Path) -> None:
    (labelled / "labels.csv").unlink()
    touch(labelled, "references/a_1.jpg", "queries/a_1_02.jpg", "queries/a-2.jpg", "queries/b.jpg")
    touch(labelled, "queries/unknown_01.jpg", "queries/b/any.jpg", "queries/ab.jpg")
    touch(labelled, "queries/b_3.HEIC")  # from a phone; it is decoded later
    touch(labelled, "queries/c/1.jpg", "queries/c/2.jpg")
    dataset = load_dataset(labelled)
    assert by_name(dataset) == {
        "queries/a_1_02.jpg": "a_1",
        "queries/a-2.jpg": "a",
        "queries/b.jpg": "b",
        "queries/b_3.HEIC": "b",
        "queries/unknown_01.jpg": None,
        "b/any.jpg": "b",
    }
    assert "5 others are left out" in dataset.remark  # 1.JPG, 2.jpg, ab.jpg, c/1.jpg, c/2.jpg
    assert "labels.csv" in dataset.with_prefix("p").remark


def test_photos_without_names_of_objects_need_labels(labelled: Path) -> None:
    (labelled / "labels.csv").unlink()
    with pytest.raises(InvalidArgument, match="has the name of an object") as caught:
        load_dataset(labelled)
    assert "query,object_id" in caught.value.advice


@pytest.mark.parametrize("folder", ["plain", "plain/references"])
def test_without_photos_the_references_are_queries_and_the_remark_explains_labels(
    labelled: Path, folder: str
) -> None:
    shutil.rmtree(labelled / "queries")
    (labelled / "labels.csv").unlink()
    (dataset,) = load_datasets(labelled.parent / folder)
    assert by_name(dataset) == {"references/a.jpg": "a", "references/b.PNG": "b", "references/b__2.jpeg": "b"}
    assert "the references are used as queries" in dataset.remark
    assert "labels.csv" in dataset.remark


def test_a_stanford_category_pairs_photos_of_all_cameras_by_number(stanford: Path) -> None:
    dataset = load_dataset(stanford / "books")
    assert {one.object_id for one in dataset.references} == {"001", "002"}
    assert by_name(dataset) == {"Canon/001.jpg": "001", "Palm/002.JPG": "002", "Palm/7.jpg": None}


def test_numbers_match_with_any_leading_zeros(tmp_path: Path) -> None:
    touch(tmp_path / "cds", "reference/0012.jpg", "E63/12.jpg")
    assert by_name(load_dataset(tmp_path / "cds")) == {"E63/12.jpg": "0012"}


def test_a_category_without_references_holds_only_unknown_objects(stanford: Path) -> None:
    dataset = load_dataset(stanford / "landmarks")
    assert dataset.references == ()
    assert by_name(dataset) == {"Query/004.jpg": None}


def test_ids_of_several_data_sets_are_distinct_in_one_catalogue(stanford: Path, labelled: Path) -> None:
    labelled.rename(stanford / "plain")
    datasets = load_datasets(stanford)
    assert [dataset.name for dataset in datasets] == ["books", "landmarks", "plain"]
    merged = merge_datasets(datasets, "all")
    assert {one.object_id for one in merged.references} == {"books/001", "books/002", "plain/a", "plain/b"}
    assert by_name(merged)["Canon/001.jpg"] == "books/001"


def test_a_single_data_set_keeps_its_ids(labelled: Path, stanford: Path) -> None:
    assert load_datasets(labelled) == (load_dataset(labelled),)
    assert load_datasets(stanford / "books") == (load_dataset(stanford / "books"),)


def test_a_folder_of_several_data_sets_is_not_loaded_as_one(stanford: Path) -> None:
    with pytest.raises(InvalidArgument, match="several data sets: books, landmarks"):
        load_dataset(stanford)


@pytest.mark.parametrize("load", [load_dataset, load_datasets])
def test_a_folder_of_unknown_layout_is_refused_with_the_known_layouts(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    touch(tmp_path, "photos/1.jpg")
    with pytest.raises(NotFound, match="no known data set") as caught:
        load(tmp_path)
    assert "labels.csv" in caught.value.advice
    assert "Reference/001.jpg" in caught.value.advice


def test_a_missing_folder_and_a_file_are_different_errors(tmp_path: Path) -> None:
    touch(tmp_path, "file")
    with pytest.raises(NotFound, match="no folder"):
        load_dataset(tmp_path / "nothing")
    with pytest.raises(InvalidArgument, match="is a file"):
        load_dataset(tmp_path / "file")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("Reference/001.jpg",), "no photos"),
        (("Reference/readme.txt", "Query/001.jpg"), "holds no images"),
        (("Reference/cover.jpg", "Query/001.jpg"), "no number"),
        (("Reference/001.jpg", "Reference/1.png", "Query/001.jpg"), "has the number of"),
    ],
)
def test_an_incomplete_category_is_refused(tmp_path: Path, names: tuple[str, ...], expected: str) -> None:
    touch(tmp_path / "books", *names)
    with pytest.raises((NotFound, InvalidArgument), match=expected):
        load_dataset(tmp_path / "books")


def test_a_data_set_refuses_duplicate_ids_and_queries_without_reference() -> None:
    reference = Reference("a", "a", (Path("a.jpg"),))
    with pytest.raises(InvalidArgument, match="more than one reference called a"):
        Dataset("x", (reference, reference), ())
    with pytest.raises(InvalidArgument, match="without a reference: b"):
        Dataset("x", (reference,), (Query(Path("q.jpg"), "b"),))
