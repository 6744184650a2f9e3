"""The store keeps what it was given, for several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.store.base import JobOwner, PodRecord, Stage, Store, StoryLine
from slurmrest_adapter.store.sqlite import SCHEMA, SqliteStore
from slurmrest_adapter.tracking.driver.follow import Follower
from slurmrest_adapter.tracking.driver.submit import submit
from tests.fakes.clock import FakeClock
from tests.fakes.pods import container, pod
from tests.fakes.world import World, container_record

RECORD = PodRecord(
    uid="uid-1",
    namespace="physics",
    name="train",
    cluster="lab",
    user="alice",
    stage=Stage.SUBMITTING,
    spec={"name": "train-1", "gpus": [{"name": "gpu", "count": 2}], "uid": 1001},
    skeleton={"containers": [{"name": "main", "init": False, "image": "busybox"}], "notes": ["☃"]},
    directory="a" * 32,
    created=1000.5,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pods.sqlite3"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def store(path: Path, clock: FakeClock) -> Store:
    return SqliteStore(path, clock)


def test_what_was_written_is_read(store: Store, path: Path) -> None:
    assert store.intend(RECORD) == RECORD
    assert SqliteStore(path).get("uid-1") == RECORD
    assert store.get("uid-2") is None


def test_an_intent_that_is_there_wins(store: Store) -> None:
    store.intend(RECORD)
    assert store.intend(replace(RECORD, directory="b" * 32, user="bob")) == RECORD
    assert len(store.story("uid-1")) == 1


def test_every_attribute_comes_back(store: Store, path: Path) -> None:
    store.intend(RECORD)
    changes: dict[str, Any] = {
        "stage": Stage.ENDED, "job_id": 7, "submit_time": 900, "restart_count": 2, "deleting": 1001.5,
        "job": {"states": ["COMPLETED"]}, "runner": {"seq": 4, "containers": []}, "usage": {"gpus": 1},
        "warnings": ["one", "two"], "error": "why", "directory": "c" * 32, "spec": {"name": "x"},
    }  # fmt: skip
    store.update("uid-1", "", "", **changes)
    found = SqliteStore(path).get("uid-1")
    assert found == replace(RECORD, **{**changes, "warnings": ("one", "two")})


@pytest.mark.parametrize("change", [{"colour": 1}, {"created": 1.0}, {"story": []}])
def test_what_cannot_change(store: Store, change: dict[str, Any]) -> None:
    store.intend(RECORD)
    with pytest.raises(KeyError):
        store.update("uid-1", "x", "x", **change)
    assert len(store.story("uid-1")) == 1


def test_no_such_pod(store: Store) -> None:
    with pytest.raises(KeyError):
        store.update("uid-1", "x", "x", job_id=7)
    with pytest.raises(KeyError):
        store.update("uid-1", "x", "x")
    assert store.story("uid-1") == []


def test_the_story_is_in_the_order_it_was_told(store: Store, clock: FakeClock) -> None:
    store.intend(RECORD)
    for number in range(5):
        store.update("uid-1", "event", f"line {number}")
        clock.sleep(0.5 if number % 2 else 0.25)
    store.update("uid-1", "", "never told", job_id=7)
    story = store.story("uid-1")
    assert story[0] == StoryLine(1000.0, "intent", "to be submitted as alice")
    assert [line.text for line in story[1:]] == [f"line {number}" for number in range(5)]
    assert [line.time for line in story] == sorted(line.time for line in story)


def test_found_by_uid_job_id_and_name(store: Store) -> None:
    store.intend(RECORD)
    store.intend(replace(RECORD, uid="uid-2", created=1001.0))
    store.intend(replace(RECORD, uid="uid-3", namespace="ai", created=1002.0))
    store.intend(replace(RECORD, uid="uid-4", name="99", created=1003.0))
    store.update("uid-1", "", "", job_id=99)

    def uids(word: str) -> list[str]:
        return [record.uid for record in store.find(word)]

    assert uids("uid-1") == ["uid-1"]
    assert uids("train") == ["uid-3", "uid-2", "uid-1"]
    assert uids("physics/train") == ["uid-2", "uid-1"]
    assert uids("99") == ["uid-4", "uid-1"]
    for word in ("", "98", "nobody", "physics/", "/train", "ai/train/x", "%", "' OR 1=1 --", "9" * 40, "٣"):
        assert uids(word) == []


def test_lists_leave_out_what_has_ended(store: Store) -> None:
    for number, stage in enumerate(Stage):
        store.intend(replace(RECORD, uid=f"uid-{number}", stage=stage, created=float(number)))
    assert [record.stage for record in store.pods()] == [Stage.SUBMITTED, Stage.SUBMITTING]
    assert [record.stage for record in store.pods(ended=True)] == list(Stage)[::-1]


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_nobody_else_can_read_it(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        SqliteStore(path).intend(RECORD)
    finally:
        os.umask(before)
    files = list(path.parent.iterdir())
    assert path in files
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_an_older_stores_mode_is_mended(path: Path) -> None:
    SqliteStore(path)
    path.chmod(0o644)
    SqliteStore(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_newer_schema_is_refused(path: Path) -> None:
    SqliteStore(path)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    db.close()
    with pytest.raises(ConfigError, match="newer release"):
        SqliteStore(path)


def test_what_is_no_store(path: Path) -> None:
    path.write_bytes(b"no database " * 100)
    with pytest.raises(ConfigError, match="cannot be used"):
        SqliteStore(path)
    with pytest.raises(ConfigError, match="cannot be used"):
        SqliteStore(path.parent / "nowhere" / "pods.sqlite3")
    with pytest.raises(ConfigError, match="cannot be used"):
        SqliteStore(path.parent)


def test_a_change_that_fails_leaves_nothing(store: Store) -> None:
    store.intend(RECORD)
    with pytest.raises(sqlite3.IntegrityError):
        store.update("uid-1", "x", "x", user=None)
    assert store.get("uid-1") == RECORD
    assert len(store.story("uid-1")) == 1


def write(path: Path, column: str, times: int) -> None:
    """One of several writers: each has columns of its own."""
    store = SqliteStore(path)
    for number in range(times):
        store.intend(replace(RECORD, uid=f"{column}-{number}"))
        changes: dict[str, Any] = {column: {"n": number}}
        store.update("uid-1", column, str(number), **changes)


def test_two_processes_lose_nothing(path: Path) -> None:
    SqliteStore(path).intend(RECORD)
    context = multiprocessing.get_context("spawn")
    columns = ("job", "runner")
    processes = [context.Process(target=write, args=(path, column, 30)) for column in columns]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    store = SqliteStore(path)
    record = store.get("uid-1")
    assert record is not None
    assert (record.job, record.runner) == ({"n": 29}, {"n": 29})
    assert len(store.story("uid-1")) == 61
    assert len(store.pods()) == 61


def together(work: Callable[[int], None], count: int) -> list[BaseException]:
    """Run in threads that begin at the same time; what they raised."""
    begin, raised = threading.Barrier(count), list[BaseException]()

    def run(number: int) -> None:
        begin.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  told to the test
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_many_threads_share_one_store(store: Store) -> None:
    store.intend(RECORD)
    assert together(lambda n: write_lines(store, n), 6) == []
    assert len(store.story("uid-1")) == 61


def write_lines(store: Store, number: int) -> None:
    for line in range(10):
        store.update("uid-1", str(number), str(line))


def test_one_intent_wins_of_many(store: Store) -> None:
    won: list[str] = []
    assert together(lambda n: won.append(store.intend(replace(RECORD, directory=str(n))).directory), 6) == []
    assert len(set(won)) == 1
    assert len(store.story("uid-1")) == 1


def opened(path: Path) -> None:
    assert SqliteStore(path).pods() == []


def test_several_first_starts(path: Path) -> None:
    assert together(lambda n: opened(path), 6) == []


def test_no_value_of_the_pod_is_in_the_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    raw = pod(
        container(
            env=[{"name": "PASSWORD", "value": "s3cr3t-value"}], args=["s3cr3t-arg"], command=["s3cr3t"]
        )
    )
    record = submit(world.deps, raw)
    world.slurm.start(100)
    world.runner_writes(record, 1, None, container_record(state="running"))
    Follower(world.deps, record.uid).look()
    world.slurm.end(100)
    Follower(world.deps, record.uid).look()
    for file in world.state.iterdir():
        assert b"s3cr3t" not in file.read_bytes()
        assert b"PASSWORD" not in file.read_bytes()
    assert "s3cr3t" not in repr(world.deps.store.get(record.uid))


def test_a_store_of_the_first_schema_is_carried_over(path: Path) -> None:
    SqliteStore(path).intend(RECORD)
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE pods DROP COLUMN changed")
        db.execute("PRAGMA user_version = 1")
    db.close()
    assert SqliteStore(path).get("uid-1") == RECORD
    assert SqliteStore(path).update("uid-1", "", "", changed=[{"field": "cpus"}]).changed == (
        {"field": "cpus"},
    )


def test_who_owns_a_job(path: Path) -> None:
    store = SqliteStore(path)
    assert store.owner(7, "") is None
    store.intend(replace(RECORD, uid="a", created=1.0))
    assert store.owner(7, "a") == JobOwner("a", RECORD.stage)  # its job is not known yet
    assert store.owner(7, "") is None
    store.update("a", "", "", job_id=7)
    store.intend(replace(RECORD, uid="b", created=2.0, job_id=7))
    store.update("b", "", "", stage=Stage.ENDED, job={"end_time": 1234})
    assert store.owner(7, "a") == JobOwner("b", Stage.ENDED, 1234)  # ids come back; the newest
    assert store.owner(8, "a") is None  # its job is another
