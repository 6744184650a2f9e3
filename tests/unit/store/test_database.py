"""How a store's file comes to be, when others come at the same time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from slurmrest_adapter.store.database import Database

CREATE = "CREATE TABLE things (name TEXT);\nCREATE INDEX things_by_name ON things (name);\n"


def made(path: Path) -> Database:
    database = Database(path, {"synchronous": "NORMAL"})
    database.prepare(1, CREATE, {})
    return database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "things.sqlite3"


def test_another_is_making_the_file(path: Path) -> None:
    """Not yet in WAL mode and locked: SQLite refuses the change of mode at once, whatever the timeout."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        ours = threading.Thread(target=made, args=(path,))
        ours.start()
        ours.join(0.3)
        assert ours.is_alive()  # it waits for its turn
        assert locked(path)  # and has taken nobody's lock away, as a close of the file would (fcntl(2))
        other.execute("COMMIT")
    ours.join(60)
    assert not ours.is_alive()
    assert made(path).connection().execute("SELECT count(*) FROM things").fetchone() == (0,)


def locked(path: Path) -> bool:
    """Does another process find it locked?"""
    program = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], timeout=0); db.execute('BEGIN IMMEDIATE')"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    return "locked" in done.stderr


def test_a_change_that_fails_is_none(path: Path) -> None:
    database = made(path)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        change(database)
    assert database.connection().execute("SELECT count(*) FROM things").fetchone() == (0,)


def change(database: Database) -> None:
    with database.transaction() as db:
        db.execute("INSERT INTO things VALUES ('x')")
        db.execute("INSERT INTO others VALUES ('x')")


def test_an_older_releases_file_is_carried_over(path: Path) -> None:
    made(path)
    Database(path, {}).prepare(
        3, "", {1: "ALTER TABLE things ADD COLUMN b TEXT", 2: "ALTER TABLE things ADD COLUMN c TEXT"}
    )
    with closing(sqlite3.connect(path)) as db:
        assert [row[1] for row in db.execute("PRAGMA table_info(things)")] == ["name", "b", "c"]
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
