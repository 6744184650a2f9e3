"""Killed at any instant and started again: one job for each pod, and a deletion that holds.

Before each outside call of the driver (store, gateway, delivery, sleep) is a place to die; it is also
the place after the call before it, whose answer then reached nobody.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import SlurmError, Unavailable
from slurmrest_adapter.store.base import Stage
from slurmrest_adapter.tracking.driver.delete import delete
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.follow import Follower
from slurmrest_adapter.tracking.driver.submit import submit
from tests.fakes.pods import UID, pod
from tests.fakes.slurm import Lost
from tests.fakes.world import World

MANY = 400  # calls; more than any of these stories takes


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory where there is one: hundreds of small worlds are made here."""
    ram = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=ram if os.access(ram, os.W_OK) else None) as directory:
        yield Path(directory)


class Killed(BaseException):
    """Nothing of the program runs after this."""


class Fuse:
    """Counts outside calls and kills at one of them."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.blown = False

    def burn(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.blown = True
            raise Killed
        return call(*args, **kwargs)


class Through:
    """Another object whose methods go through the fuse."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return lambda *args, **kwargs: self._fuse.burn(found, *args, **kwargs)


def fused(deps: Deps, fuse: Fuse) -> Deps:
    return replace(
        deps,
        store=Through(deps.store, fuse),
        gateway=Through(deps.gateway, fuse),
        delivery=Through(deps.delivery, fuse),
        sleep=lambda seconds: fuse.burn(deps.sleep, seconds),
    )


def every_instant(memory: Path, story: Callable[[World, Deps], object]) -> list[World]:
    """The worlds that are left when a story is cut short at each of its instants, in turn."""
    worlds = []
    for at in range(1, MANY):
        world = World(memory / str(at))
        fuse = Fuse(at)
        try:
            story(world, fused(world.deps, fuse))
        except Killed:
            world.restart()
            worlds.append(world)
        if not fuse.blown:
            assert len(worlds) >= 5
            return worlds
    pytest.fail("the story never came to its end")


@pytest.mark.parametrize("lost", [[], [Lost.TAKEN], [Lost.LATE], [Lost.DROPPED]])
def test_one_job_for_each_pod(memory: Path, lost: list[Lost]) -> None:
    def story(world: World, deps: Deps) -> None:
        world.slurm.lost = list(lost)
        submit(deps, pod())

    for world in every_instant(memory, story):
        world.slurm.lost = []
        record = submit(world.deps, pod())
        world.clock.sleep(60)
        assert (record.stage, list(world.slurm.jobs)) == (Stage.SUBMITTED, [record.job_id])
        assert (world.shared / record.directory / "plan.json").exists()
        # Whatever was left half made, the pod runs to its end.
        assert record.job_id is not None
        world.slurm.start(record.job_id)
        world.slurm.end(record.job_id)
        assert Follower(world.deps, UID).look().closed


@pytest.mark.parametrize("running", [False, True])
def test_a_deletion_goes_on_where_it_was_cut_short(memory: Path, running: bool) -> None:
    def story(world: World, deps: Deps) -> None:
        record = submit(world.deps, pod(terminationGracePeriodSeconds=1))
        if running:
            world.slurm.start(100)
        delete(deps, record)

    for world in every_instant(memory, story):
        record = world.deps.store.get(UID)
        assert record is not None
        seen = delete(world.deps, record)
        assert seen.standing.outcome == "CANCELLED"
        assert world.slurm.jobs[100].ended
        assert list(world.slurm.jobs) == [100]


@pytest.mark.parametrize("lost", [[], [Lost.TAKEN], [Lost.LATE], [Lost.DROPPED]])
def test_deleting_whatever_a_cut_submit_left(memory: Path, lost: list[Lost]) -> None:
    def story(world: World, deps: Deps) -> None:
        world.slurm.lost = list(lost)
        submit(deps, pod())

    for world in every_instant(memory, story):
        record = world.deps.store.get(UID)
        if record is None:
            continue  # not even the intent was written, so there is nothing to delete
        delete(world.deps, record)
        world.clock.sleep(60)
        assert all(kept.ended for kept in world.slurm.jobs.values())
        submit(world.deps, pod())
        assert all(kept.ended for kept in world.slurm.jobs.values())


def test_an_outage_at_any_instant_leaves_one_job(memory: Path) -> None:
    """Not a kill but errors: each call to Slurm fails once, in turn."""
    for at in range(1, 20):
        world = World(memory / str(at))
        world.slurm.lost = [Lost.TAKEN]
        fuse = Fuse(at)
        try:
            submit(replace(world.deps, gateway=Failing(world.slurm, fuse)), pod())
        except SlurmError:
            submit(world.deps, pod())
        assert len(world.slurm.jobs) == 1
        if not fuse.blown:
            return
    pytest.fail("the story never came to its end")


class Failing(Through):
    """Like `Through`, but the call fails as an outage would."""

    def __getattr__(self, name: str) -> Any:
        through = super().__getattr__(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return through(*args, **kwargs)
            except Killed:
                raise Unavailable("the connection broke") from None

        return call if callable(through) else through
