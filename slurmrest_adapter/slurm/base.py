"""What the other rooms ask of Slurm; `gateway.Gateway` does it, tests may fake it.

Whoever asks: `user` is the Slurm user a call is made as. For bulk questions the configured
service user goes first. Every method raises the `SlurmError` family of `domain.errors`; and
"could not ask" (`Unavailable`) is never an answer about a job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from slurmrest_adapter.domain.errors import SlurmError
from slurmrest_adapter.domain.jobs import (
    AccountingRecord,
    FoundJob,
    JobInfo,
    JobRef,
    JobState,
    NodeInfo,
    PartitionInfo,
    Ping,
)
from slurmrest_adapter.domain.jobspec import JobSpec


@dataclass(frozen=True, slots=True)
class JobChange:
    """What is to change in a job; None leaves it as it is.

    Attributes:
        begin_time: POSIX seconds; now ends the wait of a job that was requeued.
        time_limit_minutes: only Slurm's operators may raise it.
        hold: True keeps a pending job from starting, False lets it go.
    """

    comment: str | None = None
    partition: str | None = None
    qos: str | None = None
    time_limit_minutes: int | None = None
    begin_time: int | None = None
    hold: bool | None = None


class SlurmGateway(Protocol):
    """Slurm, through slurmrestd. Safe for use by many threads."""

    @property
    def keeps_accounts(self) -> bool:
        """False where `accounting` never answers a record: the site is known to have no slurmdbd."""
        ...

    def ping(self) -> Ping:
        """Whether slurmctld answers.

        A refused token is no error here: 24.11 shows slurmctld as down then. Any other question
        tells the two apart.
        """
        ...

    def partitions(self, user: str | None = None) -> list[PartitionInfo]:
        """All partitions that the asker may see."""
        ...

    def nodes(self, user: str | None = None) -> list[NodeInfo]:
        """All nodes that the asker may see."""
        ...

    def submit(self, spec: JobSpec, script: str) -> JobRef:
        """Submits as `spec.user`.

        Raises:
            RefusedIdentity: jobs never run as root, as Slurm's own user or below the least uid.
            Rejected: Slurm said no, in its own words; there is no job.
            Unavailable, Unauthorized, Incompatible: there is no job.
            MaybeAccepted: the answer was lost; look with `find_by_name` before doing it again.
        """
        ...

    def job(self, job_id: int, user: str | None = None) -> JobInfo:
        """A job in full. Raises `NotFound` when slurmctld has forgotten it or hides it."""
        ...

    def states(self, job_ids: Collection[int] | None = None, user: str | None = None) -> dict[int, JobState]:
        """State words by job id; ids that slurmctld does not know are missing. None asks for all."""
        ...

    def cancel(self, job_id: int, user: str) -> None:
        """Cancels; a job that has ended already is a success. Raises `Denied`, `NotFound`."""
        ...

    def signal(self, job_id: int, signal_name: str, user: str, batch_only: bool = True) -> None:
        """Sends a signal such as ``TERM``, to the batch process or to all of the job.

        Raises:
            ValueError: no known signal; Slurm would kill the job instead of refusing.
        """
        ...

    def accounting(self, job_id: int, user: str | None = None) -> AccountingRecord | None:
        """What slurmdbd keeps of the latest run under this id; None when it knows none.

        None also on a site without slurmdbd, for good.
        """
        ...

    def find_by_name(self, name: str, user: str, since: int | None = None) -> list[FoundJob]:
        """Jobs of exactly this name and user; all of them unless one has not ended yet.

        A submit that Slurm refused for its resources (error 2014) leaves a FAILED job that never
        ran, and is found too.

        Args:
            since: POSIX seconds; jobs that ended before may be left out. None looks at all.
        Raises:
            Unavailable: an empty answer would not have proved that there is none.
        """
        ...


class JobCommands(Protocol):
    """Further orders, which following a pod does not need."""

    def cancel_many(self, job_ids: Collection[int], user: str) -> Mapping[int, SlurmError]:
        """Cancels many at once; by id what was refused, empty when all are done or had ended already.

        Raises what concerns all of them, `Unavailable` for one; then some may be cancelled.
        """
        ...

    def update(self, job_id: int, change: JobChange, user: str) -> None:
        """Changes a job. Raises `Denied`, `NotFound`, `Rejected`."""
        ...

    def hold(self, job_id: int, user: str) -> None:
        """Keeps a pending job from starting."""
        ...

    def release(self, job_id: int, user: str) -> None:
        """Lets a held job start."""
        ...
