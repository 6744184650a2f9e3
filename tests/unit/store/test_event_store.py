"""SPANK events are kept once, within bounds, for several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.store import events as module
from slurmrest_adapter.store.base import EventStore, NodeEvents
from slurmrest_adapter.store.events import SqliteEvents
from tests.fakes.clock import FakeClock
from tests.fakes.spank import body, event, life


def pair(kind: str = "allocated", **changes: Any) -> tuple[Any, bytes]:
    return event(kind, **changes), body(kind, **changes)


LIFE = [pair(**changes) for changes in life()]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.sqlite3"


@pytest.fixture
def store(path: Path, clock: FakeClock) -> EventStore:
    return SqliteEvents(path, clock)


def test_events_are_kept_once(store: EventStore, path: Path) -> None:
    assert store.add(LIFE, [], {}) == [True] * 6
    assert store.add([*LIFE, LIFE[0]], [], {"forged": 2}) == [False] * 7
    assert store.add([LIFE[1], pair(seq=9), pair(seq=9)], [], {"forged": 1}) == [False, True, False]
    assert len(store.of_job(100)) == 7
    assert {one.kind for one in SqliteEvents(path).of_job(100)} == {one.kind for one, _ in LIFE}
    assert store.of_job(101) == []
    assert store.counters() == {"taken": 7, "duplicate": 9, "forged": 3}


def test_the_same_number_of_another_process_or_node_is_another_event(store: EventStore) -> None:
    assert store.add([pair(), pair(stream="f" * 16), pair(node="n2")], [], {}) == [True] * 3


def test_what_comes_back_is_what_was_told(store: EventStore) -> None:
    store.add(LIFE, [], {})
    assert sorted(store.of_job(100), key=lambda e: e.time) == [one for one, _ in LIFE]


def test_nodes_are_remembered(store: EventStore, clock: FakeClock) -> None:
    store.add([], [event(dropped=3), event(node="n2")], {})
    clock.sleep(5)
    store.add([], [event(dropped=2)], {})
    assert store.nodes() == {"n1": NodeEvents(2, clock(), 3), "n2": NodeEvents(1, clock() - 5, 0)}


def test_what_is_old_is_forgotten(store: EventStore, clock: FakeClock) -> None:
    store.add([pair(), pair(seq=2, time=clock() + 100)], [event(node="n2")], {})
    clock.sleep(50)
    store.add([], [event(node="n3")], {})
    store.forget(clock())
    assert [one.seq for one in store.of_job(100)] == [2]
    assert set(store.nodes()) == {"n3"}


def test_one_job_cannot_fill_the_disk(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OF_A_JOB", 3)
    assert store.add([pair(seq=n) for n in range(1, 6)], [], {}) == [True, True, True, False, False]
    assert store.add([pair(seq=6, job=101)], [], {}) == [True]
    assert store.counters() == {"taken": 4, "crowded": 2}


def test_made_up_nodes_cannot_fill_it_either(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 2)
    store.add([], [event(node=f"n{n}") for n in range(5)], {})
    store.add([], [event(node="n1")], {})
    assert {name: one.events for name, one in store.nodes().items()} == {"n0": 1, "n1": 2}


def test_a_transaction_that_fails_changes_nothing(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(SqliteEvents, "_heard", broken)
    with pytest.raises(sqlite3.OperationalError):
        store.add(LIFE, [event()], {"forged": 1})
    assert store.of_job(100) == []
    assert store.counters() == {}


def _write(path: Path, ready: Any) -> None:
    store = SqliteEvents(path)
    store.add(LIFE, [], {})
    ready.set()
    signal.pause()


def test_what_was_answered_outlives_a_kill(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_write, args=(path, ready))
    process.start()
    assert ready.wait(60)
    process.kill()
    process.join()
    assert len(SqliteEvents(path).of_job(100)) == 6


def test_only_its_owner_may_read_it(store: EventStore, path: Path) -> None:
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_newer_releases_file_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="newer release"):
        SqliteEvents(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="cannot be used"):
        SqliteEvents(tmp_path / "events.sqlite3")


def test_no_database_at_all(path: Path) -> None:
    path.write_bytes(b"x" * 5000)
    with pytest.raises(ConfigError, match="cannot be used"):
        SqliteEvents(path)
