"""What a binding does: our questions as requests of one API version, and its answers as our models.

A binding sends nothing. Each method gives an `Operation`: the request as data, and how to read a
successful answer. Identity, sending and errors are the gateway's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import requests

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
from slurmrest_adapter.slurm.base import JobChange

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One request and the meaning of its answer.

    Attributes:
        body: before JSON; kept out of `repr`.
        read: the answer's content as our model; raises `AnswerLost` for another shape.
        repeatable: sending it twice does no harm.
    """

    method: str
    path: str
    read: Callable[[requests.Response], T]
    params: tuple[tuple[str, str], ...] = ()
    body: object = field(default=None, repr=False)
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class KillRow:
    """A cancel, signal or update that did not work, although the HTTP answer was 200.

    Attributes:
        job_id: None where the answer names none.
    """

    number: int
    words: str
    job_id: int | None = None


class Binding(Protocol):
    """One API version."""

    @property
    def version(self) -> str:
        """As in the paths: ``v0.0.42``."""
        ...

    def ping(self) -> Operation[Ping]: ...
    def partitions(self) -> Operation[list[PartitionInfo]]: ...
    def nodes(self) -> Operation[list[NodeInfo]]: ...

    def submit(self, spec: JobSpec, script: str, *, name_owner: bool) -> Operation[JobRef | None]:
        """`name_owner` puts uid and gid into the job; read gives None without a job id."""
        ...

    def job(self, job_id: int) -> Operation[list[JobInfo]]:
        """Read gives all rows of the answer: an array answers as a whole."""
        ...

    def states(self, job_ids: Collection[int] | None) -> Operation[dict[int, JobState]]: ...

    def update(self, job_id: int, change: JobChange) -> Operation[list[KillRow]]: ...

    def kill(
        self, job_id: int, *, signal: str | None = None, flags: str | None = None
    ) -> Operation[list[KillRow]]: ...

    def kill_many(
        self, job_ids: Collection[int], *, signal: str | None = None, flags: str | None = None
    ) -> Operation[list[KillRow]]: ...

    def accounting(self, job_id: int) -> Operation[list[AccountingRecord]]: ...

    def accounting_by_name(self, name: str, user: str, since: int) -> Operation[list[FoundJob]]: ...

    def jobs(self) -> Operation[list[FoundJob]]:
        """All jobs of slurmctld, the few fields of `FoundJob` alone."""
        ...
