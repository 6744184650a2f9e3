"""Following a pod's job: asks Slurm and the runner, feeds the machine, keeps what it decides."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from slurmrest_adapter.domain import spank, usage
from slurmrest_adapter.domain.errors import NotFound, SlurmError
from slurmrest_adapter.domain.jobs import AccountingRecord, JobInfo, JobState
from slurmrest_adapter.domain.states import Kind, Standing, classify
from slurmrest_adapter.sources.runner import last_words, read_newer
from slurmrest_adapter.sources.userfiles import Mark, UntrustedFile
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.adopt import adopt, elder
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.readback import compare
from slurmrest_adapter.tracking.machine import (
    LOOK_AGAIN,
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

# slurmctld hands a finished job to slurmdbd within seconds, unless something is wrong there.
ACCOUNT_FOR_SECONDS = 15.0
# A submit that has not been answered for so long is looked for by its name.
ADOPT_AFTER_SECONDS = 5.0
ADOPT_LONGEST_SECONDS = 60.0
_AT_WORK = frozenset({Kind.STARTING, Kind.RUNNING, Kind.FINISHING})
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
        observed: what SPANK events say of it.
    """

    record: PodRecord
    status: PodStatus
    standing: Standing
    closed: bool
    observed: spank.Observed = spank.NOTHING


class Follower:
    """Follows one pod. Made anew it continues where the store stands.

    Args:
        deps: the driver's surroundings.
        uid: the pod; it must be in the store.
    """

    def __init__(self, deps: Deps, uid: str) -> None:
        self._deps = deps
        self._uid = uid
        self._record = self._stored()
        self._tracked = _restore(self._record)
        self._ended_at: float | None = None
        self._untrusted = ""
        self._mark: Mark | None = None
        self._adopt_at = self._record.created + ADOPT_AFTER_SECONDS
        self._adopt_pause = ADOPT_AFTER_SECONDS
        self._shown: tuple[tuple[Any, ...], Seen] | None = None
        self._twin_looked_for: set[str] = set()
        self._observed = spank.NOTHING
        self._observed_of: tuple[int | None, int | None] | None = None

    def look(self) -> Seen:
        """Ask once, and say what is so. Never raises for a Slurm that cannot be asked."""
        self.refresh(self._stored())
        job_id = self.question()
        if job_id is None:
            return self.take(None)
        try:
            return self.take(self._deps.gateway.states([job_id], self._record.user))
        except SlurmError as error:
            return self.take(error)

    def refresh(self, record: PodRecord) -> None:
        """Take the pod as the store has it now: other processes write there too."""
        closed_elsewhere = record.stage is Stage.ENDED and self._record.stage is not Stage.ENDED
        self._record = record
        if closed_elsewhere or (record.job_id is not None and record.job_id != self._tracked.job_id):
            self._restore()

    def _restore(self) -> None:
        """Go on from the record: whatever we had concluded was about something else."""
        self._tracked = _restore(self._record)
        self._mark = None

    def question(self) -> int | None:
        """The job that the next bulk question should ask for; None when there is nothing to ask."""
        self._adopt()
        record = self._record
        if record.job_id is None or record.stage is Stage.REFUSED or self._tracked.ended:
            return None
        return record.job_id

    def take(self, answer: Mapping[int, JobState] | SlurmError | None) -> Seen:
        """Take a bulk answer that asked for this job, or why there is none; None asked nothing."""
        if self._record.deleting is not None and self._record.job_id is not None:
            self._take(DeleteAsked())
        if isinstance(answer, SlurmError):
            self._take(CouldNotAsk(str(answer)))
            self._read_runner()
        elif answer is not None:
            row = answer.get(self._tracked.job_id)
            self._take(StatesAnswered(row.states if row else None))
        if self._tracked.ended and not self._record.usage:
            self._close()
        return self._seen()

    def _adopt(self) -> None:
        """Look for the job of a submit whose answer was lost; less and less often, since a look may
        cost Slurm its whole list of jobs, and not while the submit may still be on its way."""
        record, now = self._record, self._deps.clock()
        if record.job_id is not None or record.stage is not Stage.SUBMITTING or now < self._adopt_at:
            return
        self._adopt_at = now + self._adopt_pause
        self._adopt_pause = min(2 * self._adopt_pause, ADOPT_LONGEST_SECONDS)
        try:
            self.refresh(adopt(self._deps, record))
        except SlurmError as error:
            self._take(CouldNotAsk(str(error)))

    def reread(self) -> Seen | None:
        """What the runner has written since, without asking Slurm; None where no runner can be at work."""
        if self._tracked.ended or self._tracked.standing.kind not in _AT_WORK:
            return None
        self._read_runner()
        return self._seen()

    def recall_events(self) -> None:
        """Read the job's SPANK events again: there are new ones."""
        self._observed_of = None

    def _recalled(self) -> spank.Observed:
        """What the events of the job's present run say."""
        run = (self._record.job_id, self._record.submit_time)
        if run != self._observed_of and self._deps.events is not None:
            self._observed_of = run
            events = self._deps.events.of_job(run[0]) if run[0] is not None else ()
            self._observed = spank.observed(events, run[1])
        return self._observed

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
        record = self._record
        if command is Command.READ_RUNNER:
            self._read_runner()
        elif command is Command.LOOK:
            try:
                job = self._deps.gateway.job(self._tracked.job_id, record.user)
                # Kept pending behind another job of the same name? The user's own dependencies look alike.
                if job.reason == "Dependency" and self._is_a_twin("dependency"):
                    return  # the next bulk question asks for the other job
                self._record = compare(self._deps, record, job)
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

    def _is_a_twin(self, sign: str) -> bool:
        """Does another job run this pod? Then that one is followed; each sign of it is looked into once."""
        if sign in self._twin_looked_for:
            return False
        self._record = elder(self._deps, self._record)
        self._twin_looked_for.add(sign)
        if self._record.job_id == self._tracked.job_id:
            return False
        self._restore()
        return True

    def _read_runner(self) -> None:
        record = self._record
        owner = record.spec.get("uid")
        try:
            status, self._mark = read_newer(
                self._deps.shared_root, record.directory, owner, record.uid, self._mark
            )
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
                if self._is_a_twin("runner"):
                    return
            except SlurmError as error:
                self._take(CouldNotAsk(str(error)))
        self._take(RunnerSeen(status))

    def _account(self) -> AccountingRecord | None:
        try:
            return self._deps.gateway.accounting(self._tracked.job_id, self._record.user)
        except SlurmError:
            return None

    def _close(self) -> None:
        """Write the usage once slurmdbd has the end; after a while, what was observed."""
        if self._ended_at is None:
            self._ended_at = self._deps.clock()
            if not self._tracked.runner:
                self._ask_the_log()
        found = self._account()
        job = self._tracked.job
        self.recall_events()
        seen = self._recalled()
        if found is not None and not same_run(self._tracked, found.name, found.submit_time):
            found = None
        if found is not None and found.end_time and classify(found.states).ended:
            closed = {**asdict(usage.from_record(found, seen)), "killed_by": found.kill_request_user}
        elif job is not None and self._waited_enough(job):
            closed = {**asdict(usage.from_job(job, seen)), "killed_by": ""}
        else:
            return
        words = f"usage from {closed['source']}"
        self._record = self._deps.store.update(
            self._uid, "closed", words, unless_ended=True, usage=closed, stage=Stage.ENDED
        )
        # The runner removes its plan; of a pod that never started, or whose runner was killed, we do.
        self._deps.delivery.discard(self._record.directory)

    def _ask_the_log(self) -> None:
        """The runner never told anything: what it said last, or the script before it, is the reason."""
        record, job = self._record, self._tracked.job
        try:
            words = last_words(self._deps.shared_root, record.directory, record.spec.get("uid"))
        except UntrustedFile:
            return
        if words:
            run = {"restart": job.restart_count if job is not None else 0}
            self._take(RunnerSeen({"job": run, "end": {"message": f"the pod runner said: {words}"}}))

    def _waited_enough(self, job: JobInfo) -> bool:
        """Has slurmdbd had its time? A command that looks only once goes by the job's own end."""
        if not self._deps.gateway.keeps_accounts:
            return True
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
        # What another process has closed stays as it was closed.
        self.refresh(self._deps.store.update(self._uid, event, text, unless_ended=True, **changes))

    def _stored(self) -> PodRecord:
        record = self._deps.store.get(self._uid)
        if record is None:
            raise KeyError(self._uid)
        return record

    def _seen(self) -> Seen:
        record, tracked, observed = self._record, self._tracked, self._recalled()
        facts = (
            *(record.stage, record.deleting, record.error, record.usage, record.job_id, record.spec),
            *(record.skeleton, record.warnings, record.changed),
            *(tracked.job, tracked.standing, tracked.runner, tracked.unreachable, observed),
        )
        if self._shown is not None and self._shown[0] == facts:
            return self._shown[1]
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
                observed=observed,
            )
        )
        closed = bool(record.usage) or record.stage is Stage.REFUSED
        seen = Seen(record, status, tracked.standing, closed, observed)
        self._shown = (facts, seen)
        return seen


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
        turn=zlib.crc32(record.uid.encode()) % LOOK_AGAIN,
        deleting=record.deleting is not None,
    )
