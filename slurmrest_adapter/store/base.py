"""The face of stores, and what they keep of a pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from slurmrest_adapter.domain.spank import SpankEvent


class Stage(StrEnum):
    """How far a pod has come with us; Slurm's own states are in the record's job."""

    SUBMITTING = "submitting"  # the intent is written, the answer to the submit is not
    SUBMITTED = "submitted"
    REFUSED = "refused"  # Slurm said no; no job exists
    ENDED = "ended"


@dataclass(frozen=True, slots=True, repr=False)
class PodRecord:
    """One pod.

    `spec`, `skeleton`, `job`, `runner`, `usage` are JSON-able maps. The skeleton is what status
    needs of the pod (names, images, order), and holds no environment, argument or file.

    Attributes:
        directory: 32 hexadecimal digits, the pod's directory below shared_dir.
        run: (job id, submit time, restart count): job ids can come back.
        deleting: when the deletion was asked for, POSIX seconds, or None.
        changed: what the site made of the job, see `domain.readback.Change`; None until it was read.
        story: not loaded here; see `Store.story`.
    """

    uid: str
    namespace: str
    name: str
    cluster: str
    user: str
    stage: Stage
    spec: Mapping[str, Any]
    skeleton: Mapping[str, Any]
    directory: str
    created: float
    job_id: int | None = None
    submit_time: int | None = None
    restart_count: int = 0
    deleting: float | None = None
    job: Mapping[str, Any] = field(default_factory=dict)
    runner: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    error: str | None = None
    changed: tuple[Mapping[str, Any], ...] | None = None

    def __repr__(self) -> str:
        return f"PodRecord({self.namespace}/{self.name}, uid={self.uid}, job={self.job_id}, {self.stage})"


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One line of a pod's story: when (POSIX seconds), what, in words."""

    time: float
    event: str
    text: str


@dataclass(frozen=True, slots=True)
class JobOwner:
    """The pod that a job belongs to, as far as an event of the job needs it.

    Attributes:
        ended: when the job ended, POSIX seconds; None when it has not, or nobody knows.
    """

    uid: str
    stage: Stage
    ended: float | None = None


class Store(Protocol):
    """Keeps pods; every call is one transaction and survives a crash right after it."""

    def intend(self, record: PodRecord) -> PodRecord:
        """Write a pod before its submit. An existing record of the UID wins and is returned."""
        ...

    def update(
        self, uid: str, event: str, text: str, *, unless_ended: bool = False, **changes: Any
    ) -> PodRecord:
        """Change named attributes and add one line to the story (no line for an empty event).

        Args:
            unless_ended: change nothing of a pod that has ended: another process closed it.
        """
        ...

    def get(self, uid: str) -> PodRecord | None:
        """The pod with this UID."""
        ...

    def find(self, word: str) -> list[PodRecord]:
        """Pods by UID, job id, ``namespace/name`` or name; newest first."""
        ...

    def pods(self, ended: bool = False) -> list[PodRecord]:
        """Every pod that has not ended, or every pod; newest first."""
        ...

    def owner(self, job_id: int, uid: str) -> JobOwner | None:
        """The newest pod with this job; or else the pod with this UID while its job is not known.

        Cheaper than `find`: it is asked for each event that a node posts.
        """
        ...

    def story(self, uid: str) -> list[StoryLine]:
        """A pod's story, oldest line first."""
        ...


@dataclass(frozen=True, slots=True)
class NodeEvents:
    """What a node has sent: how many events, when the last one came (POSIX seconds by our clock),
    and how many its spool had no room for."""

    events: int
    last: float
    dropped: int


class EventStore(Protocol):
    """Keeps SPANK events. What a call wrote outlives the process, though perhaps no power cut."""

    def add(
        self,
        events: Sequence[tuple[SpankEvent, bytes]],
        heard: Sequence[SpankEvent],
        counts: Mapping[str, int],
    ) -> list[bool]:
        """Keep events with their text, in one transaction; False for each that is there already.

        Args:
            heard: signed events of our cluster, kept or not: their nodes have been heard of.
            counts: added to the counters, as are ``taken`` and ``duplicate`` for the events.
        """
        ...

    def of_job(self, job_id: int) -> list[SpankEvent]:
        """Every event of a job id, whichever run it is of; see `domain.spank.observed`."""
        ...

    def counters(self) -> Mapping[str, int]:
        """What was counted since the store was made."""
        ...

    def nodes(self) -> Mapping[str, NodeEvents]:
        """Every node that has been heard of within the retention."""
        ...

    def forget(self, before: float) -> None:
        """Drop what is older, POSIX seconds; may wait for the disk, and is called now and then."""
        ...
