"""A SQLite file in WAL mode that several threads and processes share: how it is made, opened and changed.

The schema's number is the file's `user_version`; one that a newer release wrote is refused, not read.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from slurmrest_adapter.domain.errors import ConfigError

BUSY_SECONDS = 30.0


class Database:
    """Connections to one file, one for each thread: SQLite's own are not to be shared while in use.

    Args:
        path: the file; its directory must exist. Only its owner may read it.
        pragmas: settings of each connection, beside those of every database here.
    """

    def __init__(self, path: Path, pragmas: Mapping[str, str | int]) -> None:
        self._path = path
        self._pragmas = dict(pragmas)
        self._local = threading.local()

    def prepare(self, schema: int, create: str, migrate: Mapping[int, str]) -> None:
        """Make the file, or carry an older release's over; whoever comes at the same time waits.

        Args:
            schema: the number of today's schema.
            create: statements that make it, each ended by a semicolon and a newline.
            migrate: from each older schema to the next, one statement.

        Raises:
            ConfigError: the file cannot be used, or a newer release wrote it.
        """
        try:
            # SQLite gives its journal the mode of the file it finds. Not by open and close: a close takes
            # away every lock that this process holds on the file, other threads' included (fcntl(2)).
            with contextlib.suppress(FileExistsError):
                os.mknod(self._path, 0o600 | stat.S_IFREG)
            self._path.chmod(0o600)
            with self.transaction() as db:
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version > schema:
                    raise ConfigError(f"{self._path} was written by a newer release (schema {version})")
                if version == 0:
                    for statement in create.strip().rstrip(";").split(";\n"):
                        db.execute(statement)
                else:
                    for old in range(version, schema):
                        db.execute(migrate[old])
                if version != schema:
                    db.execute(f"PRAGMA user_version = {schema}")
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"the store {self._path} cannot be used: {error}") from error

    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
            _into_wal_mode(db)
            for name, value in self._pragmas.items():
                db.execute(f"PRAGMA {name} = {value}")
            self._local.db = db
        return db

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One change, all or nothing; what is read in it, nobody else changes meanwhile."""
        db = self.connection()
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")


def _into_wal_mode(db: sqlite3.Connection) -> None:
    """The one statement for which SQLite does not wait its timeout while another does the same."""
    for attempt in Retrying(
        retry=retry_if_exception(_is_busy),
        wait=wait_random(0.001, 0.02),
        stop=stop_after_delay(BUSY_SECONDS),
        reraise=True,
    ):
        with attempt:
            db.execute("PRAGMA journal_mode = WAL")


def _is_busy(error: BaseException) -> bool:
    code = error.sqlite_errorcode if isinstance(error, sqlite3.Error) else None
    return code is not None and code & 0xFF == sqlite3.SQLITE_BUSY
