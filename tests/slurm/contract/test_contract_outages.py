"""Daemons that are dead or slow: nothing is mistaken for an answer, and all is well again afterwards.

Each daemon is stopped once for all versions. Nothing is asked twice here and no circuit opens, so
that each error is the daemon's own.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from slurmrest_adapter.domain.errors import MaybeAccepted, SlurmError, Unavailable
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.slurm import breaker, retry
from slurmrest_adapter.slurm.gateway import Gateway
from tests.slurm.contract.conftest import (
    NOTHING,
    OPERATOR,
    SERVED,
    SLEEP,
    UNKNOWN_JOB,
    Room,
    Site,
    refusal,
    wait,
)

pytestmark = [pytest.mark.slurm, pytest.mark.disruptive]


@pytest.fixture
def rooms(site: Site) -> Iterator[list[Room]]:
    """One for each version that the site serves."""
    found = [room_of(site, version) for version in SERVED[site.release] if version in site.served]
    for room in found:
        room.gateway.ping()
    yield found
    for room in found:
        room.tidy()
        room.gateway.close()


def room_of(site: Site, version: str, read_s: float = 30) -> Room:
    return Room(site, version, gateway(site, version, read_s=read_s))


def gateway(site: Site, version: str, read_s: float = 30) -> Gateway:
    return site.gateway(version, service_user=OPERATOR, read_s=read_s, retry=retry.NEVER, breaker=breaker.OFF)


@contextmanager
def stopped(site: Site, daemon: str) -> Iterator[None]:
    """Without one of its daemons."""
    site.lab("stop", daemon)
    try:
        yield
    finally:
        site.lab("start", daemon)


@contextmanager
def frozen(site: Site, daemon: str) -> Iterator[None]:
    """With one of its daemons there, but silent."""
    listed = json.loads(site.lab("status", "--output", "json"))["daemons"]
    (pid,) = [entry["pid"] for entry in listed if entry["name"] == daemon]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def back(room: Room) -> None:
    """Wait until slurmctld answers and the nodes have registered."""
    wait(room.gateway.ping, lambda ping: ping.up)
    wait(
        room.gateway.nodes,
        lambda nodes: all({"IDLE", "MIXED", "ALLOCATED"} & set(node.states) for node in nodes),
    )


def test_slurmctld_is_dead(site: Site, rooms: list[Room]) -> None:
    specs = [room.spec() for room in rooms]

    def submit(pair: tuple[Room, JobSpec]) -> SlurmError:
        return refusal(lambda: pair[0].gateway.submit(pair[1], SLEEP))

    with stopped(site, "slurmctld"):
        for room in rooms:
            assert not room.gateway.ping().up
        with ThreadPoolExecutor(2 * len(rooms)) as callers:  # each call takes Slurm nine seconds
            submits = callers.map(submit, zip(rooms, specs, strict=True))
            questions = callers.map(lambda room: refusal(room.gateway.states), rooms)
            submitted, asked = list(submits), list(questions)
    # Not MaybeAccepted: there is no job.
    assert {type(error) for error in submitted} == {Unavailable}
    # To jobs/state 26.05 says only "Unspecified error".
    assert all(isinstance(error, Unavailable) for error in asked)
    assert all("slurmctld" in str(error) for error in submitted + asked)
    back(rooms[0])
    for room, spec in zip(rooms, specs, strict=True):
        assert room.gateway.find_by_name(spec.name, "alice") == []


def test_slurmrestd_is_dead(site: Site, rooms: list[Room]) -> None:
    with stopped(site, "slurmrestd"):
        for room in rooms:
            calls: list[Callable[[], object]] = [
                partial(room.gateway.submit, room.spec(), NOTHING),
                room.gateway.states,
                room.gateway.ping,
                partial(room.gateway.accounting, 1, "alice"),
                partial(room.gateway.cancel, 1, "alice"),
            ]
            for call in calls:
                error = refusal(call)
                assert type(error) is Unavailable
                assert "connection refused" in str(error)
    for room in rooms:
        assert room.gateway.ping().up  # over a new connection, as if nothing had been


def test_slurmdbd_is_dead(site: Site, rooms: list[Room]) -> None:
    with stopped(site, "slurmdbd"):
        for room in rooms:
            error = refusal(partial(room.gateway.accounting, 1, "alice"))
            assert isinstance(error, Unavailable)
            assert "slurmdbd" in str(error)
            asked = room.spec()
            # The past cannot be known, so nothing is not proved.
            error = refusal(partial(room.gateway.find_by_name, asked.name, "alice"))
            assert isinstance(error, Unavailable)
            # Jobs run all the same, and are found.
            job_id = room.submit(NOTHING, asked)
            assert [job.job_id for job in room.gateway.find_by_name(asked.name, "alice")] == [job_id]
            wait(
                partial(room.gateway.job, job_id, "alice"),
                lambda job: job.states == ("COMPLETED",),
            )
    for room in rooms:
        room.ended(room.jobs[-1][0])  # slurmctld has kept it for slurmdbd


def test_slurmctld_is_silent(site: Site, rooms: list[Room]) -> None:
    """No answer in time: a question is unanswered, a submit may have been accepted, and here it was."""
    hasty = [room_of(site, room.version, read_s=2) for room in rooms]
    for room in hasty:
        room.gateway.ping()
    specs = [room.spec() for room in hasty]

    def ask(pair: tuple[Room, JobSpec]) -> list[SlurmError]:
        room, spec = pair
        return [refusal(lambda: room.gateway.submit(spec, SLEEP)), refusal(room.gateway.states)]

    with frozen(site, "slurmctld"), ThreadPoolExecutor(len(hasty)) as callers:
        found = list(callers.map(ask, zip(hasty, specs, strict=True)))
    for lost, unanswered in found:
        assert type(lost) is MaybeAccepted
        assert isinstance(unanswered, Unavailable)
        assert "nothing within 2 s" in str(unanswered)
    back(rooms[0])
    for room, spec in zip(rooms, specs, strict=True):
        (job,) = wait(partial(room.gateway.find_by_name, spec.name, "alice"), lambda jobs: jobs)
        room.jobs.append((job.job_id, "alice"))


def test_slurmdbd_is_silent(site: Site, rooms: list[Room]) -> None:
    """One question to it is unanswered, the others' answers come all the same.

    Only one: each holds a thread of slurmrestd's, which has few.
    """
    hasty = room_of(site, rooms[-1].version, read_s=2)
    hasty.gateway.ping()
    with frozen(site, "slurmdbd"):
        error = refusal(lambda: hasty.gateway.accounting(1, "alice"))
        states = [room.gateway.states() for room in rooms]
    assert isinstance(error, Unavailable)
    assert "nothing within 2 s" in str(error)
    assert all(isinstance(answer, dict) for answer in states)
    for room in rooms:
        assert room.gateway.accounting(UNKNOWN_JOB, "alice") is None
