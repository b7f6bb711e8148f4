import csv
from pathlib import Path
from urllib.parse import unquote

import pytest

from nearsight.common.errors import CorruptStore
from nearsight.experiments.report.embedded_rows import EmbeddedRows, embed_rows


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def rows_of(embedded: EmbeddedRows) -> list[list[str]]:
    kind, _, content = embedded.link.partition(",")
    assert kind == "data:text/csv;charset=utf-8"
    return list(csv.reader(unquote(content).splitlines()))


def test_rows_in_the_link_equal_those_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", 'what,ms\n"50 %, #1 & ""ä""",1\nb,2\n')
    embedded = embed_rows(path)
    assert rows_of(embedded) == [["what", "ms"], ['50 %, #1 & "ä"', "1"], ["b", "2"]]
    assert (embedded.rows, embedded.kept, embedded.step) == (2, 2, 1)


def test_constant_columns_are_stored_once(tmp_path: Path) -> None:
    embedded = embed_rows(written(tmp_path / "rows.csv", "ms,machine\n1,abacus\n2,abacus\n"))
    assert rows_of(embedded) == [["ms"], ["1"], ["2"]]
    assert embedded.constant == {"machine": "abacus"}


def test_a_single_row_keeps_its_columns(tmp_path: Path) -> None:
    assert rows_of(embed_rows(written(tmp_path / "rows.csv", "ms,on\n1,twin\n"))) == [
        ["ms", "on"],
        ["1", "twin"],
    ]


def test_too_many_rows_are_sampled_evenly_and_counted(tmp_path: Path) -> None:
    text = "n\n" + "".join(f"{n}\n" for n in range(1000))
    embedded = embed_rows(written(tmp_path / "rows.csv", text), most_characters=1000)
    kept = [int(row[0]) for row in rows_of(embedded)[1:]]
    assert kept == list(range(0, 1000, embedded.step))
    assert (embedded.rows, embedded.kept) == (1000, len(kept))
    assert 500 < len(embedded.link) <= 1000


@pytest.mark.parametrize("text", ["", "a,b\n", "a,b\n1,2\n3\n", 'a\n"1\n'])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(CorruptStore):
        embed_rows(written(tmp_path / "rows.csv", text))
