"""The state machine of a submitted pod: events in, commands out.

Nothing here asks or does anything. The driver turns answers into events, feeds them in and
carries out the commands; pushes and polls, late and double ones, all come through `step`.

What it guarantees:

* *terminal is sticky*: once a run has ended, no later event of that run brings it back;
* *unknown changes nothing*: "could not ask" keeps the last standing, it only says so;
* *gone* takes two successful bulk answers without the job, and then slurmdbd is asked. One 404
  proves nothing: private data and purged jobs look alike there;
* the key of a run is (job id, submit time, restart count): job ids can come back as another job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from slurmrest_adapter.domain.jobs import AccountingRecord, JobInfo
from slurmrest_adapter.domain.states import LOST, Kind, Standing, classify

NOTHING_KNOWN = Standing(Kind.UNKNOWN, "", "")
MISSING_TWICE = 2
# A queued job's reason moves while its state does not, and only a full look shows it. Each answer
# while there is none yet, then every eighth.
LOOK_AGAIN = 8
# Elsewhere only a job id that is another job's now would go unseen.
LOOK_AT_LEAST = 120
NO_REASON = ("", "None")
# A job that slurmctld has forgotten and slurmdbd does not know is lost, but not at once: slurmdbd
# hears of an end some time after slurmctld. One answer comes with each round of the driver.
LOST_AFTER = 60


class Command(StrEnum):
    """What the driver shall do next."""

    LOOK = "look"  # GET the job: its reason, nodes, GPUs
    ACCOUNT = "account"  # ask slurmdbd
    READ_RUNNER = "read-runner"
    CLOSE = "close"  # the run has ended: write its usage


@dataclass(frozen=True, slots=True)
class StatesAnswered:
    """A bulk answer came; `words` is None when this job was not in it."""

    words: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class JobSeen:
    """slurmctld showed the job."""

    job: JobInfo


@dataclass(frozen=True, slots=True)
class RunnerSeen:
    """The runner's status file was read."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Accounted:
    """slurmdbd's record; None when it knows no such job, or (`answered` False) could not be asked."""

    record: AccountingRecord | None
    answered: bool = True


@dataclass(frozen=True, slots=True)
class CouldNotAsk:
    """An event of its own, never a state."""

    why: str


@dataclass(frozen=True, slots=True)
class DeleteAsked:
    """The pod's deletion was asked for."""


Event = StatesAnswered | JobSeen | RunnerSeen | Accounted | CouldNotAsk | DeleteAsked


@dataclass(frozen=True, slots=True)
class Tracked:
    """What is known of a submitted pod.

    Attributes:
        job_id: the job.
        name: the job's name as it was submitted, "" when nobody knows.
        standing: the last classified state.
        job: the job as last seen.
        runner: the runner's last status.
        record: slurmdbd's record, once asked.
        missing: successful bulk answers in a row without the job.
        unlooked: bulk answers since the job was last seen in full.
        turn: less than LOOK_AGAIN; pods that were submitted together take turns at being looked at.
        unaccounted: answers by which slurmdbd, too, knew nothing of the job.
        deleting: deletion was asked for.
        unreachable: why Slurm could not be asked, "" when the last question was answered.
    """

    job_id: int
    name: str = ""
    standing: Standing = NOTHING_KNOWN
    job: JobInfo | None = None
    runner: Mapping[str, Any] = field(default_factory=dict)
    record: AccountingRecord | None = None
    missing: int = 0
    unlooked: int = 0
    turn: int = 0
    unaccounted: int = 0
    deleting: bool = False
    unreachable: str = ""

    @property
    def ended(self) -> bool:
        """True when this run is over."""
        return self.standing.ended


@dataclass(frozen=True, slots=True)
class Step:
    """A machine's move: the new state, what to do, and a line for the story ("" for none)."""

    tracked: Tracked
    commands: tuple[Command, ...] = ()
    story: str = ""


def step(tracked: Tracked, event: Event) -> Step:
    """Take one event."""
    match event:
        case StatesAnswered():
            return _states(tracked, event)
        case JobSeen():
            return _job(tracked, event.job)
        case RunnerSeen():
            return _runner(tracked, event.status)
        case Accounted():
            return _accounted(tracked, event.record, event.answered)
        case CouldNotAsk():
            new = "" if tracked.unreachable else f"Slurm could not be asked: {event.why}"
            return Step(replace(tracked, unreachable=event.why), (), new)
        case DeleteAsked():
            story = "" if tracked.deleting else "deletion asked for"
            return Step(replace(tracked, deleting=True), (), story)


def _states(tracked: Tracked, event: StatesAnswered) -> Step:
    tracked = replace(tracked, unreachable="")
    if tracked.ended:
        return Step(tracked)
    if event.words is None:
        missing = tracked.missing + 1
        story = "slurmctld no longer shows the job; asking slurmdbd" if missing == MISSING_TWICE else ""
        asks = (Command.ACCOUNT, Command.READ_RUNNER) if missing >= MISSING_TWICE else ()
        return Step(replace(tracked, missing=missing), asks, story)
    tracked = replace(tracked, missing=0, unlooked=tracked.unlooked + 1)
    seen = classify(event.words, tracked.job.reason if tracked.job else "")
    commands: tuple[Command, ...] = ()
    if tracked.job is None or seen != tracked.standing or tracked.unlooked >= LOOK_AT_LEAST:
        # Rows hold only id and words. The rest (reason, nodes, end) is worth a look of its own,
        # and the end counts only once it was seen in full.
        commands = (Command.LOOK, Command.READ_RUNNER)
    elif seen.kind in (Kind.QUEUED, Kind.HELD):
        if tracked.job.reason in NO_REASON or tracked.unlooked >= LOOK_AGAIN:
            commands = (Command.LOOK,)
    elif seen.kind in (Kind.RUNNING, Kind.FINISHING, Kind.STARTING):
        commands = (Command.READ_RUNNER,)
    return Step(tracked, commands)


def _job(tracked: Tracked, job: JobInfo) -> Step:
    if tracked.ended:
        return Step(tracked)
    if not _same_job(tracked, job):
        return Step(
            replace(tracked, missing=MISSING_TWICE), (Command.ACCOUNT,), "the job id is another job's now"
        )
    seen = classify(job.states, job.reason)
    tracked = replace(tracked, unreachable="", missing=0, unlooked=0 if tracked.job else tracked.turn)
    if seen.kind is Kind.UNKNOWN:
        if tracked.standing.kind is not Kind.UNKNOWN:
            # Keeps the last standing: a word nobody has heard of changes no pod.
            return Step(tracked, (), "")
        story = f"unknown state {seen.words}" if seen != tracked.standing else ""
        return Step(replace(tracked, job=job, standing=seen), (), story)
    old = tracked
    if old.job is not None and not job.gres and job.restart_count == old.job.restart_count:
        # Slurm forgets at the end which GPUs they were.
        job = replace(job, gres=old.job.gres)
    tracked = replace(tracked, job=job, standing=seen)
    if _run_of(tracked.runner) < job.restart_count:
        # Another run: what the first one's runner wrote is history.
        tracked = replace(tracked, runner={})
    story = ""
    if old.job is None or old.standing != seen or old.job.reason != job.reason:
        reason = "" if job.reason in NO_REASON else job.reason
        where = f"on {job.nodes}" if job.nodes else ""
        story = " ".join(part for part in (seen.words, reason, where) if part)
    commands = (Command.READ_RUNNER, Command.CLOSE) if seen.ended else ()
    return Step(tracked, commands, story)


def _same_job(tracked: Tracked, job: JobInfo) -> bool:
    if job.job_id != tracked.job_id:
        return False
    # Slurm moves submit_time forward when it requeues, so only an older run count tells a stranger.
    return same_run(tracked, job.name, job.submit_time) and (
        tracked.job is None or job.restart_count >= tracked.job.restart_count
    )


def same_run(tracked: Tracked, name: str, submit_time: int | None) -> bool:
    """Is what Slurm shows under this job id still the pod's job, and not one that got the id later?

    Its name ends in digits of the pod's UID. A user may have renamed it; then it is still known by
    the second it was submitted in.
    """
    known = tracked.name or (tracked.job.name if tracked.job else "")
    submitted = tracked.job.submit_time if tracked.job else None
    return not known or name == known or (submit_time is not None and submit_time == submitted)


def _run_of(status: Mapping[str, Any]) -> int:
    """Which run of the job a runner's status is about: Slurm's restart count."""
    return int((status.get("job") or {}).get("restart") or 0)


def _runner(tracked: Tracked, status: Mapping[str, Any]) -> Step:
    old = tracked.runner
    if status.get("seq", 0) < old.get("seq", 0):
        return Step(tracked)  # late
    if tracked.job is not None and _run_of(status) < tracked.job.restart_count:
        return Step(tracked)  # the file of a run that was requeued, still there
    story = ""
    if status != old:
        story = "; ".join(_container_words(status, old))
    return Step(replace(tracked, runner=status), (), story)


def _container_words(status: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    before = {c["name"]: c.get("state") for c in old.get("containers", ())}
    words = []
    for container in status.get("containers", ()):
        if container.get("state") == before.get(container["name"], "waiting"):
            continue
        text = f"container {container['name']} {container['state']}"
        if container["state"] == "terminated":
            text += f" ({container.get('reason')}, exit code {container.get('exit_code')})"
        words.append(text)
    return words


def _accounted(tracked: Tracked, record: AccountingRecord | None, answered: bool) -> Step:
    if record is None or not same_run(tracked, record.name, record.submit_time):
        return _unaccounted(tracked, answered)
    tracked = replace(tracked, record=record)
    if tracked.ended or tracked.missing < MISSING_TWICE:
        return Step(tracked)
    seen = classify(record.states, record.reason)
    if not seen.ended:
        return Step(tracked)
    job = replace(
        tracked.job or _from_record(record),
        states=record.states,
        exit_code=record.exit_code,
        derived_exit_code=record.derived_exit_code,
        start_time=record.start_time,
        end_time=record.end_time,
        nodes=record.nodes,
        reason=record.reason,
    )
    commands = (Command.READ_RUNNER, Command.CLOSE)
    return Step(replace(tracked, job=job, standing=seen), commands, f"slurmdbd: {seen.words}")


def _unaccounted(tracked: Tracked, answered: bool) -> Step:
    """slurmctld no longer shows the job, and slurmdbd has nothing of it either."""
    if tracked.ended or not answered or tracked.missing < MISSING_TWICE:
        return Step(tracked)
    end = tracked.runner.get("end")
    if end:
        # No daemon is left to tell, but the job itself did.
        outcome = "COMPLETED" if end.get("exit_code") == 0 else "FAILED"
        return _forgotten(tracked, outcome, "Slurm forgot the job; its runner says that it ended")
    tracked = replace(tracked, unaccounted=tracked.unaccounted + 1)
    if tracked.unaccounted < LOST_AFTER:
        return Step(tracked)
    return _forgotten(tracked, LOST, "neither slurmctld nor slurmdbd knows the job")


def _forgotten(tracked: Tracked, outcome: str, story: str) -> Step:
    job = tracked.job or JobInfo(job_id=tracked.job_id, states=(), name=tracked.name)
    job = replace(job, states=(outcome,))
    commands = (Command.READ_RUNNER, Command.CLOSE)
    return Step(replace(tracked, job=job, standing=classify(job.states)), commands, story)


def _from_record(record: AccountingRecord) -> JobInfo:
    """A job that slurmctld forgot before we ever saw it there, as far as slurmdbd knows it."""
    return JobInfo(
        job_id=record.job_id,
        states=record.states,
        name=record.name,
        user=record.user,
        account=record.account,
        partition=record.partition,
        comment=record.comment,
        restart_count=record.restart_count,
        submit_time=record.submit_time,
    )
