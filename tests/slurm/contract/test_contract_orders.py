"""What the gateway orders, through every version that each release serves: done, or refused in words."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import Denied, NotFound, Rejected
from slurmrest_adapter.domain.jobs import AccountingRecord
from slurmrest_adapter.domain.jobspec import GpuRequest
from slurmrest_adapter.slurm.base import JobChange
from tests.slurm.contract.conftest import ENDED, NOTHING, OPERATOR, UNKNOWN_JOB, Room, refusal, wait

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize(
    ("fields", "number", "words"),
    [
        ({"partition": "nowhere"}, 2000, "Invalid partition name specified"),
        ({"account": "nobody"}, 2045, "Invalid account"),
        ({"qos": "nothing"}, 2066, "Invalid qos"),
        ({"partition": "gpu", "gpus": (GpuRequest("gpu", "a100", 64),)}, 2014, "not available"),
        ({"gpus": (GpuRequest("gpu", "h9000", 1),)}, 2014, "not available"),
        ({"gpus": (GpuRequest("fpga", None, 1),)}, 2072, "Invalid generic resource"),
        ({"dependency": f"afterok:{UNKNOWN_JOB}"}, 2038, "dependency"),
        ({"constraints": "no-such-feature"}, 2029, "feature"),
        ({"reservation": "none-such"}, 2053, "reservation"),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_refusals_are_in_slurms_words(room: Room, fields: dict[str, Any], number: int, words: str) -> None:
    asked = room.spec(**fields)
    with pytest.raises(Rejected, match=words) as caught:
        room.gateway.submit(asked, NOTHING)
    assert caught.value.number == number
    # Slurm keeps a record of some that it refused (2014), ended before it began; slurmdbd may hear
    # of the job a moment before it hears of that end.
    deadline = time.monotonic() + 20
    while not all(ENDED.intersection(job.states) for job in room.gateway.find_by_name(asked.name, "alice")):
        assert time.monotonic() < deadline, room.gateway.find_by_name(asked.name, "alice")
        time.sleep(0.2)


def test_a_user_without_an_association(room: Room) -> None:
    with pytest.raises(Rejected) as caught:
        room.gateway.submit(room.spec("carol"), NOTHING)
    assert caught.value.number == 2045


def test_one_cannot_touch_anothers_job(room: Room) -> None:
    """The denial stands in a 200, and in v0.0.40 and v0.0.41 nowhere but in the bulk door's answer."""
    gateway = room.gateway
    theirs = room.submit(user="bob")
    room.running(theirs, "bob")
    for call in (
        lambda: gateway.cancel(theirs, "alice"),
        lambda: gateway.signal(theirs, "TERM", "alice"),
        lambda: gateway.signal(theirs, "KILL", "alice", batch_only=False),
        lambda: gateway.hold(theirs, "alice"),
        lambda: gateway.release(theirs, "alice"),
        lambda: gateway.update(theirs, JobChange(comment="mine"), "alice"),
    ):
        error = refusal(call)
        assert isinstance(error, Denied)
        assert error.words
    now = gateway.job(theirs, "bob")
    assert "RUNNING" in now.states
    assert now.comment != "mine"
    gateway.cancel(theirs, "bob")
    room.ended(theirs, "bob")
    gateway.cancel(theirs, "bob")  # again: it has ended, which is what was asked for
    gateway.signal(theirs, "TERM", "bob")


def test_many_are_cancelled_at_once_and_each_refusal_is_told(room: Room) -> None:
    gateway = room.gateway
    done = room.submit(NOTHING)
    mine = [room.submit() for _ in range(4)]
    theirs = room.submit(user="bob")
    room.ended(done)
    refused = gateway.cancel_many([*mine, theirs, UNKNOWN_JOB, done], "alice")
    assert {job_id: type(error) for job_id, error in refused.items()} == {
        theirs: Denied,
        UNKNOWN_JOB: NotFound,
    }
    states = wait(
        lambda: gateway.states(mine),
        lambda found: all("CANCELLED" in state.states for state in found.values()),
    )
    assert set(states) == set(mine)
    assert "CANCELLED" not in gateway.states([theirs])[theirs].states
    assert gateway.cancel_many(mine, "alice") == {}
    assert gateway.cancel_many([], "alice") == {}


def test_the_operator_may(room: Room) -> None:
    job_id = room.submit()
    room.running(job_id)
    room.gateway.cancel(job_id, OPERATOR)
    record = room.ended(job_id)
    assert record.states == ("CANCELLED",)
    assert record.kill_request_user == OPERATOR


@pytest.mark.parametrize("batch_only", [True, False])
def test_a_signal_reaches_the_batch_process(room: Room, batch_only: bool) -> None:
    job_id = room.submit("#!/bin/sh\ntrap 'kill $!; exit 7' USR1\nsleep 60 &\nwait\n")
    room.running(job_id)
    time.sleep(0.3)

    def again() -> AccountingRecord | None:
        # RUNNING is shown before the script has set its trap up; a signal then is lost.
        room.gateway.signal(job_id, "USR1", "alice", batch_only=batch_only)
        return room.gateway.accounting(job_id, "alice")

    record = wait(again, lambda record: record is not None and record.end_time)
    assert record.exit_code.return_code == 7 or record.exit_code.signal == 10
    assert record.states == ("FAILED",)


def test_a_pending_job_is_changed_held_found_and_let_go(room: Room) -> None:
    gateway = room.gateway
    blocker = room.submit()
    asked = room.spec(dependency=f"singleton,afterany:{blocker}")
    waits = room.submit(spec=asked)
    gateway.update(waits, JobChange(comment="sra1:new ü", time_limit_minutes=2, qos="high"), "alice")
    changed = gateway.job(waits, "alice")
    assert (changed.comment, changed.time_limit_minutes, changed.qos) == ("sra1:new ü", 2, "high")
    gateway.hold(waits, "alice")
    held = gateway.job(waits, "alice")
    assert (held.states, held.reason) == (("PENDING",), "JobHeldUser")
    # slurmdbd does not show a held job.
    assert [job.job_id for job in gateway.find_by_name(asked.name, "alice")] == [waits]
    gateway.cancel(blocker, "alice")
    room.ended(blocker)
    assert gateway.job(waits, "alice").states == ("PENDING",)
    gateway.release(waits, "alice")
    room.running(waits)
    error = refusal(lambda: gateway.update(waits, JobChange(partition="nowhere"), "alice"))
    assert isinstance(error, Rejected)
    gateway.cancel(waits, "alice")
    room.ended(waits)
    error = refusal(lambda: gateway.hold(waits, "alice"))
    assert isinstance(error, Rejected)
    assert error.number == 2084


def test_a_requeued_job_begins_at_once_when_told(room: Room) -> None:
    job_id = room.submit(spec=room.spec(requeue=True))
    room.running(job_id)
    room.site.lab("exec", "scontrol", "requeue", str(job_id))
    waits = wait(lambda: room.gateway.job(job_id, "alice"), lambda job: job.reason == "BeginTime")
    assert (waits.states, waits.restart_count) == (("PENDING",), 1)
    room.gateway.update(job_id, JobChange(begin_time=int(time.time())), "alice")
    # Two minutes otherwise, longer than this waits.
    again = wait(lambda: room.gateway.job(job_id, "alice"), lambda job: "PENDING" not in job.states)
    assert again.restart_count == 1


def test_a_big_script(room: Room) -> None:
    fits = "#!/bin/sh\nexit 0\n" + "#" * 3_000_000 + "\n"
    job_id = room.submit(fits)
    assert room.ended(job_id).states == ("COMPLETED",)
    error = refusal(lambda: room.gateway.submit(room.spec(), fits + "#" * 2_000_000 + "\n"))
    assert isinstance(error, Rejected)
    assert error.number == 2012
