"""The driver loop: what one round costs, and what it does beside other processes and bad pods."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import Unavailable
from slurmrest_adapter.store.base import Stage
from slurmrest_adapter.store.sqlite import SqliteStore
from slurmrest_adapter.tracking.driver.delete import ask, delete
from slurmrest_adapter.tracking.driver.follow import Follower
from slurmrest_adapter.tracking.driver.loop import Loop
from slurmrest_adapter.tracking.driver.submit import submit
from tests.fakes.pods import UID, pod
from tests.fakes.world import World, container_record


def uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def many(world: World, count: int) -> None:
    for number in range(count):
        submit(world.deps, pod(uid=uid(number), name=f"p{number}"))


def counted(world: World, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts every call of the gateway and the store from now on."""
    calls: Counter[str] = Counter()

    def count(thing: Any, name: str) -> None:
        real = getattr(thing, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return real(*arguments, **named)

        monkeypatch.setattr(thing, name, counting)

    for name in ("states", "job", "accounting", "find_by_name"):
        count(world.slurm, name)
    for name in ("get", "update", "pods", "story"):
        count(world.deps.store, name)
    return calls


def test_a_quiet_round_costs_one_question_and_one_reading(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(world, 30)
    for job_id in list(world.slurm.jobs):
        world.slurm.start(job_id)
    loop = Loop(world.deps)
    loop.round()
    loop.round()
    calls = counted(world, monkeypatch)
    for _ in range(3):
        loop.round()
    assert calls == {"states": 3, "pods": 3}


def test_pods_that_queue_are_not_all_looked_at_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, 64)
    loop = Loop(world.deps)
    loop.round()
    calls = counted(world, monkeypatch)
    looks = []
    for _ in range(8):
        calls.clear()
        loop.round()
        looks.append(calls["job"])
    assert sum(looks) >= 56
    assert max(looks) <= 24


def test_closed_by_another_process(world: World) -> None:
    record = submit(world.deps, pod())
    world.slurm.start(100)
    world.runner_writes(record, 1, None, container_record(state="running", code=None))
    loop = Loop(world.deps)
    loop.round()
    seen = loop.seen(UID)
    assert seen is not None
    assert seen.status.phase == "Running"
    world.slurm.on_signal = lambda job_id, name: world.slurm.end(job_id, "FAILED", 143)
    other = World.__new__(World)
    other.__dict__.update(world.__dict__)
    other.restart()
    delete(other.deps, record)
    while not Follower(other.deps, UID).look().closed:
        world.clock.sleep(1)
    loop.round()
    seen = loop.seen(UID)
    assert seen is not None
    assert (seen.status.phase, seen.record.stage) == ("Failed", Stage.ENDED)


def test_what_was_closed_stays_closed(world: World) -> None:
    """A slower process writes after the end; it learns from the row instead of changing it."""
    record = submit(world.deps, pod())
    world.slurm.start(100)
    slow = Follower(world.deps, UID)
    slow.look()
    world.runner_writes(record, 2, {"exit_code": 0}, container_record())
    world.slurm.end(100)
    quick = Follower(world.deps, UID)
    while not quick.look().closed:
        world.clock.sleep(1)
    world.slurm.change(100, states=("RUNNING",))
    stale = slow.take(world.slurm.states([100], "alice"))
    stored = world.deps.store.get(UID)
    assert stored is not None
    assert (stored.stage, stored.job["states"]) == (Stage.ENDED, ["COMPLETED"])
    assert stale.status.phase == "Succeeded"


@pytest.mark.parametrize("reached", [False, True])
def test_deleted_before_it_had_a_job(world: World, reached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    if reached:
        world.slurm.crash_after_submit = Killed()
        with pytest.raises(Killed):
            submit(world.deps, pod())
        world.slurm.crash_after_submit = None
        world.slurm.jobs.clear()  # and the request was lost after all
    else:
        world.slurm.down = True
        with pytest.raises(Unavailable):
            submit(world.deps, pod())
        world.slurm.down = False
    record = world.deps.store.get(UID)
    assert record is not None
    ask(world.deps, record)
    loop = Loop(world.deps)
    calls = counted(world, monkeypatch)
    for _ in range(60):
        loop.round()
        world.clock.sleep(1)
    seen = loop.seen(UID)
    assert seen is not None
    assert seen.record.stage is Stage.REFUSED
    assert seen.status.phase == "Failed"
    assert not (world.shared / record.directory / "plan.json").exists()
    assert calls["find_by_name"] <= 8


def test_an_unanswered_submit_is_looked_for_less_and_less(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    world.slurm.crash_after_submit = Killed()
    with pytest.raises(Killed):
        submit(world.deps, pod())
    world.slurm.crash_after_submit = None
    world.slurm.jobs.clear()
    loop = Loop(world.deps)
    calls = counted(world, monkeypatch)
    for _ in range(300):
        loop.round()
        world.clock.sleep(1)
    assert 4 <= calls["find_by_name"] <= 12


def test_one_bad_pod_stops_nobody_else(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many(world, 3)
    real = world.slurm.job

    def job(job_id: int, user: str | None = None) -> Any:
        if job_id == 101:
            raise ValueError("unheard of")
        return real(job_id, user)

    monkeypatch.setattr(world.slurm, "job", job)
    for job_id in list(world.slurm.jobs):
        world.slurm.start(job_id)
    loop = Loop(world.deps)
    loop.round()
    first, last = loop.seen(uid(0)), loop.seen(uid(2))
    assert first is not None
    assert last is not None
    assert (first.standing.kind, last.standing.kind) == ("running", "running")
    assert loop.seen(uid(1)) is not None


def test_a_status_between_intent_and_refusal_is_not_kept(world: World, tmp_path: Path) -> None:
    assert isinstance(world.deps.store, SqliteStore)
    submit(world.deps, pod())
    world.deps.store.update(UID, "", "", stage=Stage.SUBMITTING, job_id=None)
    loop = Loop(world.deps)
    early = loop.seen(UID)
    assert early is not None
    assert early.status.phase == "Pending"
    world.deps.store.update(UID, "refused", "no", stage=Stage.REFUSED, error="no")
    later = loop.seen(UID)
    assert later is not None
    assert later.status.phase == "Failed"


def test_a_job_that_has_started_since_the_last_look_gets_its_grace(world: World) -> None:
    record = submit(world.deps, pod())
    loop = Loop(world.deps)
    loop.round()
    world.slurm.start(100)  # nobody has looked since
    ask(world.deps, record)
    loop.round()
    assert (world.slurm.signals, world.slurm.cancels) == ([(100, "TERM", True)], [])


def test_containers_are_seen_between_two_questions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    record = submit(world.deps, pod())
    world.slurm.start(100)
    loop = Loop(world.deps, interval=300.0)
    loop.round()
    calls = counted(world, monkeypatch)
    world.runner_writes(record, 1, None, container_record(state="running", code=None))
    loop.read_runners()
    seen = loop.seen(UID)
    assert seen is not None
    assert seen.status.phase == "Running"
    loop.read_runners()
    assert calls == {"update": 1}  # what changed is written, and nobody is asked
