"""SPANK events on local disk: a SQLite file of their own beside the pods'.

Of their own, because nodes decide how much is written here and a flood must not hold the lock that
a pod's intent waits for. And with less ceremony: a node waits some milliseconds for its answer, so
no commit waits for the disk; only `forget` does, which also folds the journal. A killed process
loses nothing by that; a power cut may lose the last events, which are news that Slurm itself can
repeat.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from slurmrest_adapter.domain import spank
from slurmrest_adapter.domain.spank import SpankEvent
from slurmrest_adapter.store.base import NodeEvents
from slurmrest_adapter.store.database import Database

SCHEMA = 1
# A job of thousands of steps tells little more by its next one; without a bound it would fill the disk.
MOST_OF_A_JOB = 2000
MOST_NODES = 20_000
TAKEN, DUPLICATE, CROWDED = "taken", "duplicate", "crowded"
_CREATE = """
CREATE TABLE events (
    node TEXT NOT NULL, stream TEXT NOT NULL, seq INTEGER NOT NULL, job INTEGER NOT NULL,
    time REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (node, stream, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX events_by_job ON events (job);
CREATE INDEX events_by_time ON events (time);
CREATE TABLE counters (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE nodes (
    node TEXT PRIMARY KEY, events INTEGER NOT NULL, last REAL NOT NULL, dropped INTEGER NOT NULL
) STRICT;
"""


class SqliteEvents:
    """An `EventStore` in ``<state_dir>/events.sqlite3``.

    Args:
        path: the file; its directory must exist.
        clock: POSIX seconds.

    Raises:
        ConfigError: the file cannot be used, or a newer release wrote it.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._database = Database(path, {"synchronous": "NORMAL", "wal_autocheckpoint": 0})
        self._database.prepare(SCHEMA, _CREATE, {})

    def add(
        self,
        events: Sequence[tuple[SpankEvent, bytes]],
        heard: Sequence[SpankEvent],
        counts: Mapping[str, int],
    ) -> list[bool]:
        """See `EventStore.add`. Beyond `MOST_OF_A_JOB` a job's events are counted, not kept."""
        added = dict(counts)
        new = []
        with self._database.transaction() as db:
            for event, body in events:
                new.append(self._insert(db, event, body, added))
            for event in heard:
                self._heard(db, event)
            for name, count in added.items():
                db.execute(
                    "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count + ?",
                    (name, count, count),
                )
        return new

    def of_job(self, job_id: int) -> list[SpankEvent]:
        """See `EventStore.of_job`."""
        rows = self._database.connection().execute("SELECT body FROM events WHERE job = ?", (job_id,))
        return [spank.from_fields(msgspec.json.decode(body)) for (body,) in rows]

    def counters(self) -> Mapping[str, int]:
        """See `EventStore.counters`."""
        db = self._database.connection()
        return dict(db.execute("SELECT name, count FROM counters ORDER BY name").fetchall())

    def nodes(self) -> Mapping[str, NodeEvents]:
        """See `EventStore.nodes`."""
        db = self._database.connection()
        rows = db.execute("SELECT node, events, last, dropped FROM nodes ORDER BY node")
        return {node: NodeEvents(*rest) for node, *rest in rows}

    def forget(self, before: float) -> None:
        """See `EventStore.forget`."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM events WHERE time < ?", (before,))
            db.execute("DELETE FROM nodes WHERE last < ?", (before,))
        self._database.connection().execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _insert(self, db: sqlite3.Connection, event: SpankEvent, body: bytes, added: dict[str, int]) -> bool:
        key = (event.node, event.stream, event.seq)
        known = "SELECT 1 FROM events WHERE node = ? AND stream = ? AND seq = ?"
        if db.execute(known, key).fetchone():
            added[DUPLICATE] = added.get(DUPLICATE, 0) + 1
            return False
        (of_job,) = db.execute("SELECT count(*) FROM events WHERE job = ?", (event.job,)).fetchone()
        if of_job >= MOST_OF_A_JOB:
            added[CROWDED] = added.get(CROWDED, 0) + 1
            return False
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", (*key, event.job, event.time, body))
        added[TAKEN] = added.get(TAKEN, 0) + 1
        return True

    def _heard(self, db: sqlite3.Connection, event: SpankEvent) -> None:
        now = self._clock()
        known = db.execute(
            "UPDATE nodes SET events = events + 1, last = ?, dropped = max(dropped, ?) WHERE node = ?",
            (now, event.dropped, event.node),
        )
        if known.rowcount:
            return
        (nodes,) = db.execute("SELECT count(*) FROM nodes").fetchone()
        if nodes < MOST_NODES:
            db.execute("INSERT INTO nodes VALUES (?, 1, ?, ?)", (event.node, now, event.dropped))
