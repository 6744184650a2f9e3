"""Submitting, following and deleting against a small Slurm in memory."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import (
    AdapterError,
    Denied,
    Invalid,
    MaybeAccepted,
    RefusedIdentity,
    Rejected,
    SlurmError,
    Unavailable,
    Unsupported,
)
from slurmrest_adapter.domain.identity import read
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.adopt import LOOK_FOR_SECONDS
from slurmrest_adapter.tracking.driver.delete import NotOurs, delete
from slurmrest_adapter.tracking.driver.follow import ACCOUNT_FOR_SECONDS, ADOPT_AFTER_SECONDS, Follower, Seen
from slurmrest_adapter.tracking.driver.submit import submit
from tests.fakes.pods import OTHER_UID, UID, container, pod
from tests.fakes.slurm import Lost
from tests.fakes.world import World, container_record


class Killed(BaseException):
    """The sidecar was killed here."""


def stored(world: World, uid: str = UID) -> PodRecord:
    record = world.deps.store.get(uid)
    assert record is not None
    return record


def follow(world: World) -> Follower:
    return Follower(world.deps, UID)


def running(world: World, **spec: Any) -> PodRecord:
    """A submitted pod whose job runs."""
    record = submit(world.deps, pod(**spec))
    assert record.job_id is not None
    world.slurm.start(record.job_id)
    follow(world).look()
    return stored(world)


def end(world: World, record: PodRecord, code: int = 0) -> None:
    """The runner comes to its end, and so does the job."""
    over = {"exit_code": code, "reason": None, "message": ""}
    world.runner_writes(record, 9, over, container_record(code=code))
    assert record.job_id is not None
    world.slurm.end(record.job_id, "FAILED" if code else "COMPLETED", code)


class TestSubmit:
    def test_a_pod_becomes_a_job(self, world: World) -> None:
        record = submit(world.deps, pod())
        assert (record.stage, record.job_id) == (Stage.SUBMITTED, 100)
        info = world.slurm.jobs[100].info
        identity = read(info.comment, world.deps.key)
        assert identity is not None
        assert (identity.uid, info.name, info.user) == (UID, "train-0a1b2c3d4e5f", "alice")
        plan = json.loads((world.shared / record.directory / "plan.json").read_text())
        assert plan["uid"] == UID
        assert [line.event for line in world.deps.store.story(UID)] == ["intent", "submitted"]

    def test_twice_is_the_same_job(self, world: World) -> None:
        assert submit(world.deps, pod()) == submit(world.deps, pod())
        assert len(world.slurm.submits) == 1
        end(world, running(world))
        follow(world).look()
        assert submit(world.deps, pod()).job_id == 100
        assert len(world.slurm.submits) == 1

    @pytest.mark.parametrize(
        ("raw", "kind"),
        [
            ({"kind": "Pod"}, Invalid),
            (pod(container(livenessProbe={"exec": {"command": ["x"]}})), Unsupported),
            ({**pod(), "metadata": {"name": "a", "namespace": "nobody", "uid": UID}}, RefusedIdentity),
        ],
    )
    def test_a_pod_that_cannot_be_carried_leaves_nothing(
        self, world: World, raw: Any, kind: type[AdapterError]
    ) -> None:
        with pytest.raises(kind):
            submit(world.deps, raw)
        assert world.slurm.submits == []
        assert world.deps.store.pods(ended=True) == []
        assert list(world.shared.iterdir()) == []

    def test_a_refusal_is_kept_and_may_be_mended(self, world: World) -> None:
        world.slurm.refusal = Rejected(2045, "Invalid account or account/partition combination specified")
        with pytest.raises(Rejected):
            submit(world.deps, pod(container(args=["old"])))
        first = stored(world)
        assert (first.stage, first.job_id) == (Stage.REFUSED, None)
        seen = follow(world).look()
        assert (seen.status.phase, seen.status.reason, seen.closed) == ("Failed", "SlurmRejected", True)
        assert "Invalid account" in seen.status.message
        world.slurm.refusal = None
        again = submit(world.deps, pod(container(args=["new"])))
        assert (again.stage, again.job_id, again.error) == (Stage.SUBMITTED, 100, None)
        assert again.directory != first.directory
        plan = json.loads((world.shared / again.directory / "plan.json").read_text())
        assert plan["containers"][0]["args"] == ["new"]
        assert world.slurm.jobs[100].spec.environment["SRA_POD_DIR"].endswith(again.directory)

    def test_an_outage_before_the_submit_leaves_no_job(self, world: World) -> None:
        world.slurm.down = True
        with pytest.raises(Unavailable):
            submit(world.deps, pod())
        world.slurm.down = False
        assert submit(world.deps, pod()).job_id == 100
        assert list(world.slurm.jobs) == [100]

    @pytest.mark.parametrize("lost", [Lost.TAKEN, Lost.LATE])
    def test_a_lost_answer_is_found_by_name_and_never_submitted_again(self, world: World, lost: Lost) -> None:
        world.slurm.lost = [lost]
        assert submit(world.deps, pod()).job_id == 100
        assert len(world.slurm.submits) == 1

    def test_a_lost_question_is_asked_again_after_proof_that_there_is_no_job(self, world: World) -> None:
        world.slurm.lost = [Lost.DROPPED]
        assert submit(world.deps, pod()).job_id == 100
        assert len(world.slurm.submits) == 2
        assert world.clock.slept >= LOOK_FOR_SECONDS

    def test_no_proof_no_second_submit(self, world: World) -> None:
        world.slurm.lost = [Lost.TAKEN]
        ask = world.slurm.find_by_name

        def away(name: str, user: str, since: int | None = None) -> Any:
            raise Unavailable("slurmdbd does not answer")

        world.slurm.find_by_name = away  # type: ignore[method-assign]
        with pytest.raises(MaybeAccepted):
            submit(world.deps, pod())
        assert stored(world).stage is Stage.SUBMITTING
        # Still no proof at the next try, and the intent stands.
        with pytest.raises(SlurmError):
            submit(world.deps, pod())
        assert stored(world).stage is Stage.SUBMITTING
        world.slurm.find_by_name = ask  # type: ignore[method-assign]
        assert submit(world.deps, pod()).job_id == 100
        assert len(world.slurm.submits) == 1

    def test_lost_twice_is_said(self, world: World) -> None:
        world.slurm.lost = [Lost.DROPPED, Lost.DROPPED]
        with pytest.raises(MaybeAccepted):
            submit(world.deps, pod())
        assert stored(world).stage is Stage.SUBMITTING
        assert submit(world.deps, pod()).job_id == 100

    def test_killed_between_the_submit_and_its_answer(self, world: World) -> None:
        world.slurm.crash_after_submit = Killed()
        with pytest.raises(Killed):
            submit(world.deps, pod())
        world.slurm.crash_after_submit = None
        world.restart()
        assert stored(world).stage is Stage.SUBMITTING
        assert submit(world.deps, pod()).job_id == 100
        assert len(world.slurm.submits) == 1

    def test_killed_before_the_submit(self, world: World) -> None:
        world.slurm.crash_after_submit = Killed()
        with pytest.raises(Killed):
            submit(world.deps, pod())
        world.slurm.jobs.clear()
        world.slurm.crash_after_submit = None
        world.restart()
        record = submit(world.deps, pod())
        assert record.stage is Stage.SUBMITTED
        assert list(world.slurm.jobs) == [record.job_id]
        # A request could have been on its way: absence counts only after Slurm's own time-out.
        assert world.clock.slept >= LOOK_FOR_SECONDS

    def test_killed_and_only_looked_at(self, world: World) -> None:
        world.slurm.crash_after_submit = Killed()
        with pytest.raises(Killed):
            submit(world.deps, pod())
        # For a moment the submit may still be on its way, and is not looked for.
        assert follow(world).look().record.job_id is None
        world.clock.sleep(ADOPT_AFTER_SECONDS)
        seen = follow(world).look()
        assert seen.record.job_id == 100
        assert seen.status.message == "Slurm job 100 is queued: Resources"

    def test_a_job_that_only_looks_like_ours_is_not_taken(self, world: World) -> None:
        world.slurm.crash_after_submit = Killed()
        with pytest.raises(Killed):
            submit(world.deps, pod())
        world.slurm.crash_after_submit = None
        world.slurm.change(100, comment="sra1:forged.0000000000000000")
        assert submit(world.deps, pod()).job_id == 101


class TestFollow:
    def test_from_the_queue_to_the_end(self, world: World) -> None:
        record = submit(world.deps, pod(container(resources={"limits": {"nvidia.com/gpu": 2}})))
        follower = follow(world)
        assert follower.look().status.message == "Slurm job 100 is queued: Resources"
        world.clock.sleep(30)
        world.slurm.start(100)
        world.runner_writes(record, 1, None, container_record(state="running"))
        seen = follower.look()
        assert (seen.status.phase, seen.status.gpus, seen.status.node) == ("Running", (0, 1), "n1")
        world.clock.sleep(60)
        end(world, record, 3)
        seen = follower.look()
        assert (seen.status.phase, seen.status.exit_code, seen.closed) == ("Failed", 3, True)
        used = stored(world).usage
        assert (used["source"], used["gpu_seconds"], used["wait_seconds"]) == ("slurmdbd", 120, 30)
        assert stored(world).stage is Stage.ENDED
        # Terminal is sticky, over a restart too.
        world.slurm.requeue(100)
        world.restart()
        assert follow(world).look().status.exit_code == 3

    def test_a_pending_reason_that_changes_is_seen(self, world: World) -> None:
        submit(world.deps, pod())
        follower = follow(world)
        follower.look()
        world.slurm.change(100, reason="QOSMaxJobsPerUserLimit")
        messages = {follower.look().status.message for _ in range(20)}
        assert "Slurm job 100 is queued: QOSMaxJobsPerUserLimit" in messages
        assert world.slurm.looks < 10

    def test_slurmctld_down_changes_nothing(self, world: World) -> None:
        record = running(world)
        world.runner_writes(record, 1, None, container_record(state="running"))
        follower = follow(world)
        before = follower.look()
        world.slurm.down = True
        for _ in range(5):
            seen = follower.look()
            assert (seen.status.phase, seen.status.containers) == ("Running", before.status.containers)
            assert "could not be asked" in seen.status.message
        assert len([line for line in world.deps.store.story(UID) if "not be asked" in line.text]) == 1
        world.slurm.down = False
        assert "could not be asked" not in follower.look().status.message

    @pytest.mark.parametrize(
        ("log", "said"),
        [
            (b"first\nthe pod runner needs Python 3.6 or newer, but this node has no python3\n\n", "python3"),
            (b"no end", "no end"),
            (b"x" * 10000 + b"\n" + b"\xff\x1b[2J\x07", "\ufffd?[2J?"),
            (b"", ""),
        ],
    )
    def test_a_runner_that_told_nothing_has_a_log(self, world: World, log: bytes, said: str) -> None:
        record = running(world)
        path = world.shared / record.directory / "runner.log"
        path.write_bytes(log)
        if os.geteuid() == 0:
            os.chown(path, world.uid, world.uid)
        world.slurm.end(100, "FAILED", 125)
        message = follow(world).look().status.message
        assert "no record was found of container main" in message
        assert ("the pod runner said: " in message) is bool(said)
        assert message.endswith(said)
        assert len(message) < 600
        assert follow(world).look().status.message == message  # from the store

    def test_a_log_that_is_another_file_is_not_read(self, world: World, tmp_path: Path) -> None:
        record = running(world)
        secret = tmp_path / "secret"
        secret.write_text("a secret")
        (world.shared / record.directory / "runner.log").symlink_to(secret)
        world.slurm.end(100, "FAILED", 125)
        assert "secret" not in follow(world).look().status.message

    def test_slurmdbd_down_gives_what_was_observed(self, world: World) -> None:
        record = running(world)
        world.slurm.slurmdbd_down = True
        world.clock.sleep(10)
        end(world, record)
        follower = follow(world)
        assert not follower.look().closed
        world.clock.sleep(ACCOUNT_FOR_SECONDS)
        seen = follower.look()
        assert seen.closed
        assert (seen.record.usage["source"], seen.record.usage["elapsed_seconds"]) == ("observed", 10)
        assert seen.status.phase == "Succeeded"

    def test_nobody_waits_for_an_account_that_cannot_come(self, world: World) -> None:
        record = running(world)
        world.slurm.slurmdbd_down = True
        world.slurm.keeps_accounts = False
        world.clock.sleep(10)
        end(world, record)
        seen = follow(world).look()
        assert seen.closed
        assert (seen.record.usage["source"], seen.record.usage["elapsed_seconds"]) == ("observed", 10)

    def test_a_command_that_looks_once_goes_by_the_jobs_own_end(self, world: World) -> None:
        record = running(world)
        world.slurm.slurmdbd_down = True
        end(world, record)
        assert not follow(world).look().closed
        world.clock.sleep(600)
        assert follow(world).look().record.usage["source"] == "observed"

    def test_slurmdbd_hears_of_the_end_later(self, world: World) -> None:
        record = running(world)
        world.slurm.slow_accounting = True
        end(world, record)
        follower = follow(world)
        assert not follower.look().closed
        world.slurm.slow_accounting = False
        world.clock.sleep(3)
        assert follower.look().record.usage["source"] == "slurmdbd"

    def test_purged_by_slurmctld_ends_from_slurmdbd(self, world: World) -> None:
        record = running(world)
        end(world, record, 3)
        world.slurm.purge(100)
        follower = follow(world)
        assert not follower.look().standing.ended
        seen = follower.look()
        assert (seen.status.phase, seen.status.exit_code) == ("Failed", 3)
        assert "state FAILED" in seen.status.message

    def test_never_seen_and_already_purged(self, world: World) -> None:
        record = submit(world.deps, pod())
        world.slurm.start(100)
        end(world, record)
        world.slurm.purge(100)
        follower = follow(world)
        follower.look()
        seen = follower.look()
        assert (seen.status.phase, seen.record.job["name"]) == ("Succeeded", "train-0a1b2c3d4e5f")

    def test_gone_from_slurmctld_and_slurmdbd_not_to_be_asked(self, world: World) -> None:
        record = running(world)
        end(world, record)
        world.slurm.purge(100)
        world.slurm.slurmdbd_down = True
        follower = follow(world)
        for _ in range(5):
            assert not follower.look().standing.ended
        world.slurm.slurmdbd_down = False
        assert follower.look().status.phase == "Succeeded"

    def test_a_requeue_is_no_end(self, world: World) -> None:
        record = running(world)
        world.runner_writes(record, 5, None, container_record(code=137))
        follower = follow(world)
        assert follower.look().status.phase == "Running"
        world.slurm.requeue(100)
        for _ in range(3):
            seen = follower.look()
            assert (seen.status.phase, seen.record.restart_count) == ("Pending", 1)
            assert "waiting" in seen.status.containers[0]["state"]
        world.slurm.start(100)
        world.runner_writes(stored(world), 6, None, container_record(state="running"))
        assert "running" in follower.look().status.containers[0]["state"]

    def test_the_job_id_came_back_as_another_job(self, world: World) -> None:
        running(world)
        stranger = replace(world.slurm.jobs[100].info, name="theirs", comment="", submit_time=2_000_000_000)
        world.slurm.jobs[100].info = stranger
        world.slurm.end(100, "COMPLETED")
        follower = follow(world)
        for _ in range(5):
            seen = follower.look()
            assert not seen.standing.ended
            assert not seen.closed

    def test_a_file_somebody_has_been_at_is_told_once(self, world: World) -> None:
        record = running(world)
        (world.shared / record.directory / "status.json").symlink_to("/etc/passwd")
        follower = follow(world)
        for _ in range(5):
            assert follower.look().status.phase == "Pending"
        lines = [line for line in world.deps.store.story(UID) if line.event == "untrusted"]
        assert len(lines) == 1

    def test_nothing_new_is_not_written(self, world: World) -> None:
        running(world)
        follower = follow(world)
        follower.look()
        before = len(world.deps.store.story(UID))
        for _ in range(20):
            follower.look()
        assert len(world.deps.store.story(UID)) == before


class TestDelete:
    def test_a_queued_pod_is_cancelled(self, world: World) -> None:
        record = submit(world.deps, pod())
        seen = delete(world.deps, record)
        assert (world.slurm.signals, world.slurm.cancels) == ([], [100])
        assert (seen.standing.outcome, seen.status.reason) == ("CANCELLED", "")
        assert "deletion" in seen.status.message

    def test_a_running_pod_gets_term_and_its_grace(self, world: World) -> None:
        record = running(world, terminationGracePeriodSeconds=20)

        def runner_ends(job_id: int, name: str) -> None:
            world.clock.after(12, lambda: end(world, record, 143))

        world.slurm.on_signal = runner_ends
        seen = delete(world.deps, record)
        assert world.slurm.signals == [(100, "TERM", True)]
        assert world.slurm.cancels == []
        assert (seen.status.exit_code, seen.status.containers[0]["state"]["terminated"]["reason"]) == (
            143,
            "Error",
        )
        assert 12 <= world.clock.slept < 20

    def test_who_does_not_listen_is_cancelled_after_the_grace(self, world: World) -> None:
        record = running(world, terminationGracePeriodSeconds=20)
        told: list[Seen] = []
        seen = delete(world.deps, record, tell=told.append)
        assert world.slurm.signals == [(100, "TERM", True)]
        assert world.slurm.cancels == [100]
        assert 30 <= world.clock.slept < 33
        assert seen.status.containers[0]["state"]["terminated"]["exitCode"] == 137
        assert told

    def test_a_runner_that_tidies_up_slowly_has_the_last_word(self, world: World) -> None:
        record = running(world, terminationGracePeriodSeconds=20)
        world.slurm.on_signal = lambda *_: world.clock.after(28, lambda: end(world, record, 137))
        seen = delete(world.deps, record)
        assert world.slurm.cancels == []
        assert 28 <= world.clock.slept < 29
        assert seen.status.containers[0]["state"]["terminated"]["reason"] == "Error"

    def test_no_grace_no_term(self, world: World) -> None:
        delete(world.deps, running(world), grace_seconds=0)
        assert (world.slurm.signals, world.slurm.cancels) == ([], [100])

    def test_again_is_no_error(self, world: World) -> None:
        record = submit(world.deps, pod())
        first = delete(world.deps, record)
        second = delete(world.deps, stored(world))
        assert (first.status, world.slurm.cancels) == (second.status, [100])
        world.slurm.purge(100)
        assert delete(world.deps, stored(world)).status.phase == "Failed"

    def test_an_ended_pod_stays_as_it_ended(self, world: World) -> None:
        record = running(world)
        end(world, record)
        follow(world).look()
        assert delete(world.deps, stored(world)).status.phase == "Succeeded"
        assert world.slurm.cancels == []

    def test_ended_but_not_yet_seen(self, world: World) -> None:
        record = running(world)
        end(world, record)
        assert delete(world.deps, stored(world)).status.phase == "Succeeded"

    @pytest.mark.parametrize("comment", ["", "somebody else's", "sra1:e30.0000000000000000"])
    def test_a_foreign_identity_is_left_alone(self, world: World, comment: str) -> None:
        record = running(world)
        world.slurm.change(100, comment=comment)
        with pytest.raises(NotOurs, match="left alone"):
            delete(world.deps, record)
        assert (world.slurm.signals, world.slurm.cancels) == ([], [])

    def test_another_pods_job_is_left_alone(self, world: World) -> None:
        record = running(world)
        other = submit(world.deps, pod(uid=OTHER_UID))
        assert other.job_id is not None
        world.slurm.change(100, comment=world.slurm.jobs[other.job_id].info.comment)
        with pytest.raises(NotOurs):
            delete(world.deps, record)
        assert world.slurm.cancels == []

    def test_slurm_down_is_said_and_the_wish_is_kept(self, world: World) -> None:
        record = running(world)
        world.slurm.down = True
        with pytest.raises(Unavailable):
            delete(world.deps, record)
        assert stored(world).deleting is not None
        world.slurm.down = False
        assert delete(world.deps, stored(world), grace_seconds=0).standing.ended

    def test_denied_is_said(self, world: World) -> None:
        record = submit(world.deps, pod())
        world.slurm.change(100, user="bob")
        with pytest.raises(Denied):
            delete(world.deps, record)

    def test_a_submit_without_an_answer_is_looked_up_and_cancelled(self, world: World) -> None:
        world.slurm.crash_after_submit = Killed()
        with pytest.raises(Killed):
            submit(world.deps, pod())
        world.restart()
        seen = delete(world.deps, stored(world))
        assert world.slurm.cancels == [100]
        assert (seen.record.job_id, seen.status.phase) == (100, "Failed")
        delete(world.deps, stored(world))
        assert world.slurm.cancels == [100]

    def test_a_submit_that_left_no_job(self, world: World) -> None:
        world.slurm.crash_after_submit = Killed()
        with pytest.raises(Killed):
            submit(world.deps, pod())
        world.slurm.jobs.clear()
        world.slurm.crash_after_submit = None
        seen = delete(world.deps, stored(world))
        assert world.clock.slept >= LOOK_FOR_SECONDS
        assert (seen.record.stage, seen.closed, seen.status.phase) == (Stage.REFUSED, True, "Failed")
        assert "the pod was deleted before Slurm had its job" in seen.status.message
        assert delete(world.deps, stored(world)).status == seen.status
        # Its creation does not come back to life.
        submit(world.deps, pod())
        assert world.slurm.jobs == {}

    def test_a_submit_without_an_answer_while_slurm_is_down(self, world: World) -> None:
        world.slurm.crash_after_submit = Killed()
        with pytest.raises(Killed):
            submit(world.deps, pod())
        world.slurm.down = True
        with pytest.raises(Unavailable):
            delete(world.deps, stored(world))
        assert (stored(world).stage, stored(world).deleting is None) == (Stage.SUBMITTING, False)
        world.slurm.down = False
        assert delete(world.deps, stored(world)).standing.ended

    def test_deleted_while_the_submit_is_on_its_way(self, world: World) -> None:
        take = world.slurm._take

        def slow(spec: Any) -> int:
            world.deps.store.update(UID, "delete", "deletion asked for", deleting=world.clock())
            return take(spec)

        world.slurm._take = slow  # type: ignore[method-assign]
        submit(world.deps, pod())
        assert world.slurm.cancels == [100]

    def test_deleted_while_a_lost_answer_is_looked_for(self, world: World) -> None:
        world.slurm.lost = [Lost.DROPPED]
        world.clock.after(
            3, lambda: world.deps.store.update(UID, "delete", "deletion asked for", deleting=world.clock())
        )
        with pytest.raises(Rejected, match="deleted"):
            submit(world.deps, pod())
        assert len(world.slurm.submits) == 1
        assert stored(world).stage is Stage.REFUSED


def test_as_root_the_plan_is_the_users_own(world: World) -> None:
    record = submit(world.deps, pod())
    assert (world.shared / record.directory).stat().st_uid == (
        world.uid if os.geteuid() == 0 else os.geteuid()
    )
