"""After a submit the job is read once."""

from __future__ import annotations

from typing import Any

from slurmrest_adapter.domain.errors import Unavailable
from slurmrest_adapter.tracking.driver.follow import Follower
from slurmrest_adapter.tracking.driver.submit import submit
from tests.fakes.pods import UID, pod
from tests.fakes.world import World


def site_changes(world: World, **fields: Any) -> None:
    """A submit plugin that has its own mind."""
    take = world.slurm._take

    def changed(spec: Any) -> int:
        job_id = take(spec)
        world.slurm.change(job_id, **fields)
        return job_id

    world.slurm._take = changed  # type: ignore[method-assign]


def test_what_the_site_changed_is_kept(world: World) -> None:
    site_changes(world, partition="slow", cpus=4, qos="normal")
    record = submit(world.deps, pod())
    assert record.changed == (
        {"field": "partition", "asked": None, "got": "slow"},
        {"field": "qos", "asked": None, "got": "normal"},
        {"field": "cpus", "asked": 1, "got": 4},
    )
    assert "cpus: 4 instead of 1" in world.deps.store.story(UID)[-1].text
    assert world.slurm.looks == 1


def test_nothing_changed_is_known_too(world: World) -> None:
    site_changes(world, partition="")
    assert submit(world.deps, pod()).changed == ()
    assert [line.event for line in world.deps.store.story(UID)] == ["intent", "submitted"]


def test_a_read_back_that_fails_is_no_error_and_made_up_for(world: World) -> None:
    job = world.slurm.job

    def away(job_id: int, user: str | None = None) -> Any:
        raise Unavailable("slurmctld does not answer")

    world.slurm.job = away  # type: ignore[method-assign]
    record = submit(world.deps, pod())
    assert (record.job_id, record.changed) == (100, None)
    world.slurm.job = job  # type: ignore[method-assign]
    assert Follower(world.deps, UID).look().record.changed is not None


def test_it_is_compared_once(world: World) -> None:
    record = submit(world.deps, pod())
    world.slurm.change(100, time_limit_minutes=1)  # scontrol, later: not what the submit became
    assert Follower(world.deps, UID).look().record.changed == record.changed
