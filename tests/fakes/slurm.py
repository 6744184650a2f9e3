"""A small Slurm in memory behind the `SlurmGateway` protocol.

It keeps jobs, not answers: jobs queue, start, end, are requeued, cancelled, purged, and slurmdbd
remembers them after slurmctld has forgotten. Outages, denials and lost answers are switches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum

from slurmrest_adapter.domain.errors import (
    Denied,
    MaybeAccepted,
    NotFound,
    Rejected,
    SlurmError,
    Unavailable,
)
from slurmrest_adapter.domain.jobs import (
    AccountingRecord,
    ExitCode,
    FoundJob,
    JobInfo,
    JobRef,
    JobState,
    NodeInfo,
    PartitionInfo,
    Ping,
)
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.domain.states import TERMINAL, classify
from slurmrest_adapter.domain.usage import tres
from tests.fakes.clock import FakeClock

UIDS = {"alice": 1001, "bob": 1002}


class Lost(Enum):
    """What became of a submit whose answer was lost."""

    TAKEN = "taken"
    DROPPED = "dropped"
    LATE = "late"  # still on its way; taken five seconds later


@dataclass
class Kept:
    """A job in slurmctld, slurmdbd or both."""

    info: JobInfo
    spec: JobSpec
    purged: bool = False  # slurmctld has forgotten it
    killed_by: str = ""

    @property
    def ended(self) -> bool:
        return classify(self.info.states, self.info.reason).ended


class FakeGateway:
    """A `SlurmGateway`.

    Attributes:
        jobs: by job id; a test may put any job there.
        submits: names of the jobs that a submit was tried for, in order.
        signals, cancels: (job id, signal, batch only) and job ids, as they were asked.
        looks: how often `job` was asked.
        down, slurmdbd_down: outages of slurmctld and slurmdbd.
        refusal: raised by the next submits.
        lost: the next submits' answers are lost, one for each entry.
        on_signal: what the batch process does with a signal.
        slow_accounting: slurmdbd has not heard of ends yet.
        keeps_accounts: the site has a slurmdbd.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.jobs: dict[int, Kept] = {}
        self.submits: list[str] = []
        self.signals: list[tuple[int, str, bool]] = []
        self.cancels: list[int] = []
        self.looks = 0
        self.down = False
        self.slurmdbd_down = False
        self.slow_accounting = False
        self.keeps_accounts = True
        self.refusal: SlurmError | None = None
        self.lost: list[Lost] = []
        self.on_signal: Callable[[int, str], None] = lambda job_id, name: None
        self.crash_after_submit: BaseException | None = None
        self.next_id = 100

    # What a test does to Slurm

    def change(self, job_id: int, **changes: object) -> None:
        kept = self.jobs[job_id]
        kept.info = replace(kept.info, **changes)  # type: ignore[arg-type]

    def start(self, job_id: int, node: str = "n1") -> None:
        """Give the job its node and GPUs, unless a job of its name still runs (``singleton``)."""
        kept = self.jobs[job_id]
        same = [k for i, k in self.jobs.items() if i < job_id and k.info.name == kept.info.name]
        if any(not k.ended for k in same) and "singleton" in kept.spec.dependency:
            self.change(job_id, reason="Dependency")
            return
        now = int(self.clock())
        gpus = sum(gpu.count for gpu in kept.spec.gpus)
        kind = kept.spec.gpus[0].type if gpus else None
        allocated = f"cpu={kept.spec.cpus},mem={kept.spec.memory_mib}M,node=1"
        self.change(
            job_id,
            states=("RUNNING",),
            reason="None",
            nodes=node,
            start_time=now,
            gres=(f"gpu:{kind or 'a100'}:{gpus}(IDX:0-{gpus - 1})",) if gpus else (),
            tres_allocated=allocated + (f",gres/gpu={gpus}" if gpus else ""),
        )

    def end(self, job_id: int, state: str = "COMPLETED", code: int = 0, reason: str = "None") -> None:
        """End the job; a code above 128 is a signal's."""
        exit_code = ExitCode(code, None, ("SUCCESS" if not code else "ERROR",))
        if code > 128:
            exit_code = ExitCode(None, code - 128, ("SIGNALED",))
        now = int(self.clock())
        start = self.jobs[job_id].info.start_time or now
        self.change(
            job_id,
            states=(state,),
            reason=reason,
            exit_code=exit_code,
            gres=(),
            start_time=start,
            end_time=now,
        )

    def requeue(self, job_id: int) -> None:
        """Slurm starts the job again by itself: same id, one restart more, a newer submit time."""
        info = self.jobs[job_id].info
        self.change(
            job_id,
            states=("PENDING",),
            reason="BeginTime",
            nodes="",
            gres=(),
            restart_count=info.restart_count + 1,
            submit_time=int(self.clock()),
            start_time=None,
        )

    def purge(self, job_id: int) -> None:
        """slurmctld forgets the job (MinJobAge)."""
        self.jobs[job_id].purged = True

    # The protocol

    def ping(self) -> Ping:
        return Ping("24.11.5", {"ctl": not self.down})

    def partitions(self, user: str | None = None) -> list[PartitionInfo]:
        self._up()
        return [PartitionInfo("main", ("UP",), "n1", 60, None, 8)]

    def nodes(self, user: str | None = None) -> list[NodeInfo]:
        self._up()
        return [NodeInfo("n1", ("IDLE",), 8, 16384, "gpu:a100:4")]

    def submit(self, spec: JobSpec, script: str) -> JobRef:
        self.submits.append(spec.name)
        if self.down:
            raise Unavailable("slurmctld does not answer")
        if self.refusal is not None:
            raise self.refusal
        lost = self.lost.pop(0) if self.lost else None
        job_id = self.next_id
        if lost is Lost.LATE:
            self.clock.after(5, lambda: self._take(spec))
        elif lost is not Lost.DROPPED:
            job_id = self._take(spec)
        if self.crash_after_submit is not None:
            raise self.crash_after_submit
        if lost is not None:
            raise MaybeAccepted("the job may have been accepted: the connection broke")
        return JobRef(job_id)

    def job(self, job_id: int, user: str | None = None) -> JobInfo:
        self._up()
        self.looks += 1
        kept = self.jobs.get(job_id)
        if kept is None or kept.purged:
            raise NotFound(2017, "Invalid job id specified")
        return kept.info

    def states(self, job_ids: Collection[int] | None = None, user: str | None = None) -> dict[int, JobState]:
        self._up()
        return {
            job_id: JobState(job_id, kept.info.states)
            for job_id, kept in self.jobs.items()
            if not kept.purged and (job_ids is None or job_id in job_ids)
        }

    def cancel(self, job_id: int, user: str) -> None:
        self._up()
        kept = self._own(job_id, user)
        self.cancels.append(job_id)
        if not kept.ended:
            kept.killed_by = user
            running = kept.info.states == ("RUNNING",)
            self.end(job_id, "CANCELLED", 143 if running else 0)

    def signal(self, job_id: int, signal_name: str, user: str, batch_only: bool = True) -> None:
        self._up()
        kept = self._own(job_id, user)
        if kept.ended:
            return  # Slurm: already done, which is a success
        if kept.info.states != ("RUNNING",):
            raise Rejected(2050, "Job is pending execution")
        self.signals.append((job_id, signal_name, batch_only))
        self.on_signal(job_id, signal_name)

    def accounting(self, job_id: int, user: str | None = None) -> AccountingRecord | None:
        self._dbd_up()
        kept = self.jobs.get(job_id)
        if kept is None:
            return None
        info = kept.info
        ended = info.states[0] in TERMINAL and not self.slow_accounting
        elapsed = (info.end_time or 0) - (info.start_time or 0) if ended else 0
        return AccountingRecord(
            job_id=job_id,
            states=info.states if ended else ("RUNNING",),
            name=info.name,
            user=info.user,
            account=info.account,
            partition=info.partition,
            comment=info.comment if ended else "",
            nodes=info.nodes,
            exit_code=info.exit_code,
            reason=info.reason,
            kill_request_user=kept.killed_by,
            restart_count=info.restart_count,
            submit_time=info.submit_time,
            start_time=info.start_time,
            end_time=info.end_time if ended else None,
            elapsed_seconds=elapsed,
            cpu_user_seconds=1.5,
            cpu_system_seconds=0.5,
            max_rss_mib=64,
            tres_allocated=tres(info.tres_allocated),
        )

    def find_by_name(self, name: str, user: str, since: int | None = None) -> list[FoundJob]:
        self._up()
        return [
            FoundJob(
                job_id,
                kept.info.states,
                name,
                user,
                kept.info.comment if kept.ended else "",
                kept.info.submit_time,
            )
            for job_id, kept in self.jobs.items()
            if kept.info.name == name and kept.info.user == user
        ]

    # Inside

    def _take(self, spec: JobSpec) -> int:
        job_id = self.next_id
        self.next_id += 1
        info = JobInfo(
            job_id=job_id,
            states=("PENDING",),
            name=spec.name,
            user=spec.user,
            account=spec.account or "",
            partition=spec.partition or "main",
            reason="Resources",
            comment=spec.comment,
            cpus=spec.cpus,
            memory_mib=spec.memory_mib,
            time_limit_minutes=spec.time_limit_minutes,
            submit_time=int(self.clock()),
            uid=UIDS.get(spec.user),
            dependency=spec.dependency,
        )
        self.jobs[job_id] = Kept(info, spec)
        return job_id

    def _own(self, job_id: int, user: str) -> Kept:
        kept = self.jobs.get(job_id)
        if kept is None or kept.purged:
            raise NotFound(2017, "Invalid job id specified")
        if kept.info.user != user:
            raise Denied(2002, "Access/permission denied")
        return kept

    def _up(self) -> None:
        if self.down:
            raise Unavailable("slurmctld does not answer")

    def _dbd_up(self) -> None:
        if self.slurmdbd_down:
            raise Unavailable("slurmdbd does not answer")
