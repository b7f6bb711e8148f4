"""A small database for tests of properties that all databases share."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nearsight.common.database.files import DatabaseFormat, open_database

FORMAT = DatabaseFormat(
    application_id=1,
    versions=("CREATE TABLE things (name TEXT);\n",),
    example="things.db",
    begin_advice="begin one",
    recover_advice="restore it",
    busy_timeout_s=0.05,
)


def rows(path: Path, table: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def database_with_a_row(folder: Path) -> Path:
    """A database of version 1 with one row."""
    path = folder / "things.db"
    with closing(open_database(path, FORMAT, create=True)) as connection:
        connection.execute("INSERT INTO things VALUES ('lamp')")
    return path


USER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("INSERT INTO things VALUES ('chair')")
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def used_by_another_process(path: Path) -> Iterator[None]:
    """Another process has written a row, which is in the log only, and keeps the file open."""
    process = subprocess.Popen(
        [sys.executable, "-c", USER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        assert process.stdout.readline() == "open\n"
        try:
            yield
        finally:
            process.kill()
            process.wait(60)
