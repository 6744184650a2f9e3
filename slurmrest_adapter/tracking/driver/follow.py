"""Following a pod's job: asks Slurm and the runner, feeds the machine, keeps what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from slurmrest_adapter.domain import usage
from slurmrest_adapter.domain.errors import NotFound, SlurmError
from slurmrest_adapter.domain.jobs import AccountingRecord, JobInfo, JobState
from slurmrest_adapter.domain.states import Standing, classify
from slurmrest_adapter.sources.runner import read_status
from slurmrest_adapter.sources.userfiles import UntrustedFile
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.adopt import adopt, elder
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.readback import compare
from slurmrest_adapter.tracking.machine import (
    NOTHING_KNOWN,
    Accounted,
    Command,
    CouldNotAsk,
    DeleteAsked,
    Event,
    JobSeen,
    RunnerSeen,
    StatesAnswered,
    Tracked,
    same_run,
    step,
)
from slurmrest_adapter.translate.status import Facts, PodStatus, pod_status

# slurmctld hands a finished job to slurmdbd within seconds; a site without one never will.
ACCOUNT_FOR_SECONDS = 15.0
# Who said it, in the story.
_SOURCES: Mapping[type[Event], str] = {
    StatesAnswered: "slurm",
    JobSeen: "slurm",
    RunnerSeen: "runner",
    Accounted: "slurmdbd",
    CouldNotAsk: "slurm",
    DeleteAsked: "delete",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a pod.

    Attributes:
        record: as the store has it after the look.
        status: what Kubernetes would say.
        standing: Slurm's state, classified.
        closed: the job has ended and its usage is written.
    """

    record: PodRecord
    status: PodStatus
    standing: Standing
    closed: bool


class Follower:
    """Follows one pod. Made anew it continues where the store stands.

    Args:
        deps: the driver's surroundings.
        uid: the pod; it must be in the store.
    """

    def __init__(self, deps: Deps, uid: str) -> None:
        self._deps = deps
        self._uid = uid
        record = self._record()
        self._tracked = _restore(record)
        self._ended_at: float | None = None
        self._untrusted = ""
        self._twin_looked_for: set[str] = set()

    def look(self) -> Seen:
        """Ask once, and say what is so. Never raises for a Slurm that cannot be asked."""
        job_id = self.question()
        if job_id is None:
            return self.take(None)
        try:
            return self.take(self._deps.gateway.states([job_id], self._record().user))
        except SlurmError as error:
            return self.take(error)

    def question(self) -> int | None:
        """The job that the next bulk question should ask for; None when there is nothing to ask."""
        record = self._adopted(self._record())
        if record.job_id is None or record.stage is Stage.REFUSED or self._tracked.ended:
            return None
        return record.job_id

    def take(self, answer: Mapping[int, JobState] | SlurmError | None) -> Seen:
        """Take a bulk answer that asked for this job, or why there is none; None asked nothing."""
        record = self._record()
        if record.deleting is not None and record.job_id is not None:
            self._take(DeleteAsked())
        if isinstance(answer, SlurmError):
            self._take(CouldNotAsk(str(answer)))
            self._read_runner(record)
        elif answer is not None:
            row = answer.get(self._tracked.job_id)
            self._take(StatesAnswered(row.states if row else None))
        if self._tracked.ended and not record.usage:
            self._close(record)
        return self._seen()

    def _adopted(self, record: PodRecord) -> PodRecord:
        """With its job, where the answer to its submit was lost and the job has turned up since."""
        if record.job_id is None and record.stage is Stage.SUBMITTING:
            try:
                record = adopt(self._deps, record)
            except SlurmError as error:
                self._take(CouldNotAsk(str(error)))
        if record.job_id is not None and self._tracked.job_id != record.job_id:
            self._tracked = _restore(record)
        return record

    def remembered(self) -> Seen:
        """What is known without asking anybody."""
        return self._seen()

    def _take(self, event: Event) -> None:
        move = step(self._tracked, event)
        # Counters are the machine's own business and not worth a write.
        changed = move.tracked != replace(
            self._tracked,
            missing=move.tracked.missing,
            unlooked=move.tracked.unlooked,
            unaccounted=move.tracked.unaccounted,
        )
        self._tracked = move.tracked
        if changed or move.story:
            self._keep(_SOURCES[type(event)] if move.story else "", move.story)
        for command in move.commands:
            self._do(command)

    def _do(self, command: Command) -> None:
        record = self._record()
        if command is Command.READ_RUNNER:
            self._read_runner(record)
        elif command is Command.LOOK:
            try:
                job = self._deps.gateway.job(self._tracked.job_id, record.user)
                # Kept pending behind another job of the same name? The user's own dependencies look alike.
                if job.reason == "Dependency" and self._is_a_twin(record, "dependency"):
                    return  # the next bulk question asks for the other job
                compare(self._deps, record, job)
                self._take(JobSeen(job))
            except NotFound:
                return  # proves nothing; the next bulk answer tells
            except SlurmError as error:
                self._take(CouldNotAsk(str(error)))
        elif command is Command.ACCOUNT:
            try:
                self._take(Accounted(self._deps.gateway.accounting(self._tracked.job_id, record.user)))
            except SlurmError:
                self._take(Accounted(None, answered=False))

    def _is_a_twin(self, record: PodRecord, sign: str) -> bool:
        """Does another job run this pod? Then that one is followed; each sign of it is looked into once."""
        if sign in self._twin_looked_for:
            return False
        record = elder(self._deps, record)
        self._twin_looked_for.add(sign)
        if record.job_id == self._tracked.job_id:
            return False
        self._tracked = _restore(record)
        return True

    def _read_runner(self, record: PodRecord) -> None:
        try:
            status = read_status(self._deps.shared_root, record.directory, record.spec.get("uid"), record.uid)
        except UntrustedFile as error:
            if str(error) != self._untrusted:  # once, not at every look
                self._untrusted = str(error)
                self._keep("untrusted", str(error))
            return
        if status is None:
            return
        holder = str((status.get("job") or {}).get("id") or "")
        if holder and holder != str(self._tracked.job_id):
            try:
                if self._is_a_twin(record, "runner"):
                    return
            except SlurmError as error:
                self._take(CouldNotAsk(str(error)))
        self._take(RunnerSeen(status))

    def _account(self, record: PodRecord) -> AccountingRecord | None:
        try:
            return self._deps.gateway.accounting(self._tracked.job_id, record.user)
        except SlurmError:
            return None

    def _close(self, record: PodRecord) -> None:
        """Write the usage once slurmdbd has the end; after a while, what was observed."""
        if self._ended_at is None:
            self._ended_at = self._deps.clock()
        found = self._account(record)
        job = self._tracked.job
        if found is not None and not same_run(self._tracked, found.name, found.submit_time):
            found = None
        if found is not None and found.end_time and classify(found.states).ended:
            closed = {**asdict(usage.from_record(found)), "killed_by": found.kill_request_user}
        elif job is not None and self._waited_enough(job):
            closed = {**asdict(usage.from_job(job)), "killed_by": ""}
        else:
            return
        self._deps.store.update(
            self._uid, "closed", f"usage from {closed['source']}", usage=closed, stage=Stage.ENDED
        )
        # The runner removes its plan; of a pod that never started, or whose runner was killed, we do.
        self._deps.delivery.discard(record.directory)

    def _waited_enough(self, job: JobInfo) -> bool:
        """Has slurmdbd had its time? A command that looks only once goes by the job's own end."""
        now = self._deps.clock()
        since = self._ended_at if self._ended_at is not None else now
        long_ago = bool(job.end_time) and now - (job.end_time or 0) >= 4 * ACCOUNT_FOR_SECONDS
        return long_ago or now - since >= ACCOUNT_FOR_SECONDS

    def _keep(self, event: str, text: str) -> None:
        tracked = self._tracked
        changes: dict[str, Any] = {"runner": dict(tracked.runner)}
        if tracked.job is not None:
            changes |= {
                "job": asdict(tracked.job),
                "submit_time": tracked.job.submit_time,
                "restart_count": tracked.job.restart_count,
            }
        self._deps.store.update(self._uid, event, text, **changes)

    def _record(self) -> PodRecord:
        record = self._deps.store.get(self._uid)
        if record is None:
            raise KeyError(self._uid)
        return record

    def _seen(self) -> Seen:
        record = self._record()
        tracked = self._tracked
        status = pod_status(
            Facts(
                containers=record.skeleton["containers"],
                job=tracked.job,
                standing=tracked.standing,
                runner=tracked.runner,
                refused=record.error if record.stage is Stage.REFUSED else None,
                deleting=record.deleting is not None,
                killed_by=str(record.usage.get("killed_by") or ""),
                notes=record.skeleton.get("notes", ()),
                unreachable=tracked.unreachable
                or str(record.error if record.stage is Stage.SUBMITTING and record.error else ""),
            )
        )
        closed = bool(record.usage) or record.stage is Stage.REFUSED
        return Seen(record, status, tracked.standing, closed)


def _restore(record: PodRecord) -> Tracked:
    """The machine's state from the store."""
    job = JobInfo.from_dict(record.job) if record.job else None
    runner: Mapping[str, Any] = record.runner
    return Tracked(
        job_id=record.job_id or 0,
        name=str(record.spec.get("name") or ""),
        standing=classify(job.states, job.reason) if job else NOTHING_KNOWN,
        job=job,
        runner=runner,
        deleting=record.deleting is not None,
    )
