"""The store on local disk: one SQLite file in WAL mode.

Several processes share it (`run` follows a pod while `delete` ends it), so every change is one
immediate transaction, and a change reads the row inside it: two writers cannot lose each other's
columns.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurmrest_adapter.store.base import JobOwner, PodRecord, Stage, StoryLine
from slurmrest_adapter.store.database import Database

SCHEMA = 2
_CREATE = """
CREATE TABLE pods (
    uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, cluster TEXT NOT NULL,
    user TEXT NOT NULL, stage TEXT NOT NULL, spec TEXT NOT NULL, skeleton TEXT NOT NULL,
    directory TEXT NOT NULL, created REAL NOT NULL, job_id INTEGER, submit_time INTEGER,
    restart_count INTEGER NOT NULL DEFAULT 0, deleting REAL, job TEXT NOT NULL DEFAULT '{}',
    runner TEXT NOT NULL DEFAULT '{}', usage TEXT NOT NULL DEFAULT '{}',
    warnings TEXT NOT NULL DEFAULT '[]', error TEXT, changed TEXT NOT NULL DEFAULT 'null'
) STRICT;
CREATE INDEX pods_by_job ON pods (job_id);
CREATE INDEX pods_by_name ON pods (name, namespace);
CREATE TABLE story (uid TEXT NOT NULL, time REAL NOT NULL, event TEXT NOT NULL, text TEXT NOT NULL) STRICT;
CREATE INDEX story_by_pod ON story (uid, time);
"""
# From each schema to the next.
_MIGRATE = {1: "ALTER TABLE pods ADD COLUMN changed TEXT NOT NULL DEFAULT 'null'"}
_COLUMNS = (
    "uid", "namespace", "name", "cluster", "user", "stage", "spec", "skeleton", "directory",
    "created", "job_id", "submit_time", "restart_count", "deleting", "job", "runner", "usage",
    "warnings", "error", "changed",
)  # fmt: skip
_JSON = frozenset({"spec", "skeleton", "job", "runner", "usage", "warnings", "changed"})
_OWNER = "SELECT uid, stage, json_extract(job, '$.end_time') FROM pods WHERE "
_OWNER_BY_JOB = _OWNER + "job_id = ? ORDER BY created DESC LIMIT 1"
_OWNER_BY_UID = _OWNER + "uid = ? AND job_id IS NULL"
_FIXED = frozenset({"uid", "created"})


class SqliteStore:
    """A `Store` in ``<state_dir>/pods.sqlite3``.

    Args:
        path: the file; its directory must exist.
        clock: POSIX seconds, for the story.

    Raises:
        ConfigError: the file cannot be opened, or a newer release wrote it.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # FULL: an intent must survive a power cut, or a pod could be submitted twice.
        self._database = Database(path, {"synchronous": "FULL"})
        self._database.prepare(SCHEMA, _CREATE, _MIGRATE)

    def intend(self, record: PodRecord) -> PodRecord:
        """See `Store.intend`."""
        with self._database.transaction() as db:
            existing = self._row(db, record.uid)
            if existing:
                return existing
            marks = ", ".join("?" * len(_COLUMNS))
            db.execute(f"INSERT INTO pods VALUES ({marks})", _values(record))  # noqa: S608
            self._tell(db, record.uid, "intent", f"to be submitted as {record.user}")
        return record

    def update(
        self, uid: str, event: str, text: str, *, unless_ended: bool = False, **changes: Any
    ) -> PodRecord:
        """See `Store.update`.

        Raises:
            KeyError: no such pod, or an attribute that cannot change.
        """
        unknown = set(changes) - set(_COLUMNS) | set(changes) & _FIXED
        if unknown:
            raise KeyError(", ".join(sorted(unknown)))
        with self._database.transaction() as db:
            if unless_ended:
                row = self._row(db, uid)
                if row is not None and row.stage is Stage.ENDED:
                    return row
            if changes:
                names = ", ".join(f"{name} = ?" for name in changes)
                values = [_encode(name, value) for name, value in changes.items()]
                db.execute(f"UPDATE pods SET {names} WHERE uid = ?", (*values, uid))  # noqa: S608
            record = self._row(db, uid)
            if record is None:
                raise KeyError(uid)
            if event:
                self._tell(db, uid, event, text)
        return record

    def get(self, uid: str) -> PodRecord | None:
        """See `Store.get`."""
        return self._row(self._database.connection(), uid)

    def find(self, word: str) -> list[PodRecord]:
        """See `Store.find`."""
        namespace, slash, name = word.rpartition("/")
        where, values = "uid = ? OR name = ?", [word, word]
        if slash:
            where, values = "namespace = ? AND name = ?", [namespace, name]
        elif word.isdecimal():
            where, values = "uid = ? OR name = ? OR job_id = ?", [word, word, word]
        rows = self._database.connection().execute(
            f"SELECT {', '.join(_COLUMNS)} FROM pods WHERE {where} ORDER BY created DESC",  # noqa: S608
            values,
        )
        return [_record(row) for row in rows]

    def pods(self, ended: bool = False) -> list[PodRecord]:
        """See `Store.pods`."""
        over = () if ended else (str(Stage.ENDED), str(Stage.REFUSED))
        marks = ", ".join("?" * len(over))
        rows = self._database.connection().execute(
            f"SELECT {', '.join(_COLUMNS)} FROM pods WHERE stage NOT IN ({marks}) ORDER BY created DESC",  # noqa: S608
            over,
        )
        return [_record(row) for row in rows]

    def owner(self, job_id: int, uid: str) -> JobOwner | None:
        """See `Store.owner`."""
        db = self._database.connection()
        row = db.execute(_OWNER_BY_JOB, (job_id,)).fetchone()
        if row is None and uid:
            row = db.execute(_OWNER_BY_UID, (uid,)).fetchone()
        if row is None:
            return None
        owner, stage, ended = row
        return JobOwner(owner, Stage(stage), ended)

    def story(self, uid: str) -> list[StoryLine]:
        """See `Store.story`."""
        rows = self._database.connection().execute(
            "SELECT time, event, text FROM story WHERE uid = ? ORDER BY time, rowid", (uid,)
        )
        return [StoryLine(*row) for row in rows]

    def _row(self, db: sqlite3.Connection, uid: str) -> PodRecord | None:
        row = db.execute(f"SELECT {', '.join(_COLUMNS)} FROM pods WHERE uid = ?", (uid,)).fetchone()  # noqa: S608
        return _record(row) if row else None

    def _tell(self, db: sqlite3.Connection, uid: str, event: str, text: str) -> None:
        db.execute("INSERT INTO story VALUES (?, ?, ?, ?)", (uid, self._clock(), event, text))


def _encode(name: str, value: Any) -> Any:
    if name in _JSON:
        return json.dumps(value, sort_keys=True)
    return str(value) if isinstance(value, Stage) else value


def _values(record: PodRecord) -> list[Any]:
    return [_encode(name, getattr(record, name)) for name in _COLUMNS]


def _record(row: tuple[Any, ...]) -> PodRecord:
    raw = dict(zip(_COLUMNS, row, strict=True))
    for name in _JSON:
        raw[name] = json.loads(raw[name])
    raw["warnings"] = tuple(raw["warnings"])
    raw["changed"] = None if raw["changed"] is None else tuple(raw["changed"])
    raw["stage"] = Stage(raw["stage"])
    return PodRecord(**raw)
