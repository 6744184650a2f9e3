"""Submits that never left, came twice or overtook each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import MaybeAccepted, Unavailable
from slurmrest_adapter.store.base import Stage
from slurmrest_adapter.tracking.driver.delete import delete
from slurmrest_adapter.tracking.driver.deps import LOOK_FOR_SECONDS
from slurmrest_adapter.tracking.driver.follow import Follower
from slurmrest_adapter.tracking.driver.submit import give_up, submit
from tests.fakes.pods import UID, pod
from tests.fakes.slurm import Lost
from tests.fakes.world import World, container_record


def events(world: World) -> list[str]:
    return [line.event for line in world.deps.store.story(UID)]


def down_then_up(world: World) -> None:
    """A submit that found nobody."""
    world.slurm.down = True
    with pytest.raises(Unavailable):
        submit(world.deps, pod())
    world.slurm.down = False


def twice(world: World) -> None:
    """Somebody in between delivers each submit twice and hands back the second answer."""
    take = world.slurm._take

    def both(spec: Any) -> int:
        take(spec)
        return take(spec)

    world.slurm._take = both  # type: ignore[method-assign]


class TestUnsent:
    def test_an_outage_is_no_refusal(self, world: World) -> None:
        down_then_up(world)
        seen = Follower(world.deps, UID).look()
        assert (seen.record.stage, seen.closed, seen.status.phase) == (Stage.SUBMITTING, False, "Pending")
        assert "slurmctld does not answer" in seen.status.message

    def test_it_is_submitted_without_a_look_when_asked_for_again(self, world: World) -> None:
        down_then_up(world)
        record = submit(world.deps, pod())
        assert (record.job_id, record.error, world.clock.slept) == (100, None, 0)
        assert events(world) == ["intent", "unsent", "again", "submitted"]

    def test_a_lost_answer_after_it_is_looked_for_all_the_same(self, world: World) -> None:
        down_then_up(world)
        world.slurm.lost = [Lost.LATE]
        assert submit(world.deps, pod()).job_id == 100
        assert list(world.slurm.jobs) == [100]

    def test_killed_in_the_submit_after_it(self, world: World) -> None:
        """What "unsent" said is not true of the submit that came later."""
        down_then_up(world)
        world.clock.sleep(100)
        world.slurm.lost = [Lost.LATE]
        world.slurm.crash_after_submit = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            submit(world.deps, pod())
        world.restart()
        world.slurm.crash_after_submit = None
        assert submit(world.deps, pod()).job_id == 100
        assert list(world.slurm.jobs) == [100]

    def test_deleted_it_is_gone_at_once(self, world: World) -> None:
        down_then_up(world)
        record = world.deps.store.get(UID)
        assert record is not None
        assert delete(world.deps, record).record.stage is Stage.REFUSED
        assert world.clock.slept == 0

    def test_given_up(self, world: World) -> None:
        down_then_up(world)
        give_up(world.deps, UID, "slurmctld does not answer")
        seen = Follower(world.deps, UID).look()
        assert (seen.record.stage, seen.closed) == (Stage.REFUSED, True)

    def test_what_may_have_been_accepted_is_not_given_up(self, world: World) -> None:
        world.slurm.lost = [Lost.DROPPED, Lost.DROPPED]
        with pytest.raises(MaybeAccepted):
            submit(world.deps, pod())
        give_up(world.deps, UID, "no")
        record = world.deps.store.get(UID)
        assert record is not None
        assert record.stage is Stage.SUBMITTING


class TestTwins:
    def test_the_job_that_waits_for_its_twin_is_not_the_pods(self, world: World) -> None:
        twice(world)
        assert submit(world.deps, pod()).job_id == 101
        world.slurm.start(100)
        world.slurm.start(101)  # singleton: stays pending, reason Dependency
        follower = Follower(world.deps, UID)
        follower.look()
        seen = follower.look()
        assert (seen.record.job_id, seen.standing.words) == (100, "RUNNING")
        assert "twin" in events(world)

    def test_the_runners_claim_tells_too(self, world: World) -> None:
        """The first was over before anybody looked; the second did nothing."""
        twice(world)
        record = submit(world.deps, pod())
        world.slurm.start(100)
        path_of_first = {"exit_code": 3, "reason": None, "message": ""}
        world.slurm.end(100, "FAILED", 3)
        world.slurm.start(101)
        world.slurm.end(101)
        world.runner_writes(record, 1, path_of_first, container_record(code=3))
        status = world.shared / record.directory / "status.json"
        status.write_text(status.read_text().replace('"id": "101"', '"id": "100"'))
        follower = Follower(world.deps, UID)
        follower.look()
        seen = follower.look()
        assert (seen.record.job_id, seen.status.phase, seen.status.exit_code) == (100, "Failed", 3)

    def test_a_deleted_pods_twin_finds_nothing_to_run(self, world: World) -> None:
        """The first job is cancelled while it waits, and nothing holds the second back then."""
        twice(world)
        record = submit(world.deps, pod())
        plan = world.shared / record.directory / "plan.json"
        assert plan.exists()
        there: list[bool] = []
        cancel = world.slurm.cancel

        def looked(job_id: int, user: str) -> None:
            there.append(plan.exists())
            cancel(job_id, user)

        world.slurm.cancel = looked  # type: ignore[method-assign]
        delete(world.deps, record)
        assert there == [False]

    def test_a_running_pod_keeps_its_plan_until_its_end(self, world: World) -> None:
        record = submit(world.deps, pod(terminationGracePeriodSeconds=0))
        world.slurm.start(100)
        there: list[bool] = []
        cancel = world.slurm.cancel

        def looked(job_id: int, user: str) -> None:
            there.append((world.shared / record.directory / "plan.json").exists())
            cancel(job_id, user)

        world.slurm.cancel = looked  # type: ignore[method-assign]
        delete(world.deps, record)
        assert there == [True]

    def test_a_request_that_is_later_than_the_deletion_finds_nothing(self, world: World) -> None:
        world.slurm.lost = [Lost.DROPPED]
        world.slurm.crash_after_submit = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            submit(world.deps, pod())
        record = world.deps.store.get(UID)
        assert record is not None
        assert (world.shared / record.directory / "plan.json").exists()
        delete(world.deps, record)
        assert not (world.shared / record.directory / "plan.json").exists()

    def test_a_users_own_dependency_is_looked_into_once(self, world: World) -> None:
        submit(world.deps, pod())
        world.slurm.change(100, reason="Dependency")
        asked: list[str] = []
        find = world.slurm.find_by_name

        def counted(name: str, user: str, since: int | None = None) -> Any:
            asked.append(name)
            return find(name, user, since)

        world.slurm.find_by_name = counted  # type: ignore[method-assign]
        follower = Follower(world.deps, UID)
        for _ in range(40):
            follower.look()
        assert len(asked) == 1
        assert "twin" not in events(world)

    def test_of_several_the_first_is_found(self, world: World) -> None:
        twice(world)
        world.slurm.lost = [Lost.TAKEN]
        assert submit(world.deps, pod()).job_id == 100


def test_the_time_to_look_is_a_setting(world: World) -> None:
    world.slurm.lost = [Lost.DROPPED]
    submit(replace(world.deps, look_for=2.0), pod())
    assert 2 <= world.clock.slept < LOOK_FOR_SECONDS
