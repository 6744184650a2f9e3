"""What the SPANK plugin and this side have in common: option names, events, what events say together.

docs/spank.md is the contract. An event is news, never the truth about a job: that is Slurm's own
answer. So nothing in here says what state a job is in; it says what a node saw and when.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

PLUGIN = "slurmrest_adapter"
EVENTS_PATH = "/spank/v1/events"
# A variable of this name is an option of a plugin to slurmstepd (job environment) and to the
# prolog and epilog (SPANK environment).
OPTION_PREFIX = "_SLURM_SPANK_OPTION_"
POD_UID_VARIABLE = f"{OPTION_PREFIX}{PLUGIN}_pod_uid"
# What the plugin takes as a pod's UID.
POD_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
BATCH = "batch"


class Kind(StrEnum):
    """What an event tells."""

    ALLOCATED = "allocated"  # the job's prolog has begun on this node
    STEP_START = "step_start"
    TASK_START = "task_start"
    TASK_EXIT = "task_exit"
    STEP_END = "step_end"
    RELEASED = "released"  # the job's epilog
    TEST = "test"  # posted by `spank check`; of no job


STARTS = frozenset({Kind.ALLOCATED, Kind.STEP_START, Kind.TASK_START})


@dataclass(frozen=True, slots=True)
class SpankEvent:
    """One event.

    Attributes:
        time: POSIX seconds by the node's clock.
        stream, seq: with the node they are the event's identity; a stream is one process's.
        job: 0 for a test.
        step: ``batch``, ``extern``, ``interactive`` or a step's number; "" for a job's own events.
        pod: the UID that the job's option carries, "" without one. Any user can give any UID: it
            proves nothing.
        gpus: indices on the node; None when the plugin does not know.
        cpu_s: user and system time of a step on this node, seconds; None when not known.
        peak_bytes: the step's peak memory on this node; None when not known.
        dropped: events of this node that its spool had no room for, so far.
    """

    kind: Kind
    cluster: str
    node: str
    time: float
    stream: str
    seq: int
    job: int = 0
    step: str = ""
    pod: str = ""
    gpus: tuple[int, ...] | None = None
    cpu_s: float | None = None
    peak_bytes: int | None = None
    dropped: int = 0

    @property
    def starts(self) -> bool:
        """Does it tell that something of the job has begun?"""
        return self.kind in STARTS

    @property
    def ends(self) -> bool:
        """Does it tell that the job itself is over, or about to be? An srun step's end does not."""
        return self.kind is Kind.RELEASED or (self.kind is Kind.STEP_END and self.step == BATCH)


@dataclass(frozen=True, slots=True)
class Observed:
    """What the events of one run say together; None where they say nothing.

    Attributes:
        node: where it ran.
        started, ended: POSIX seconds by the node's clock.
        gpus: indices on that node.
        cpu_s: user and system time over all its steps.
        peak_bytes: the largest step's peak.
        events: how many there are.
    """

    node: str = ""
    started: float | None = None
    ended: float | None = None
    gpus: tuple[int, ...] | None = None
    cpu_s: float | None = None
    peak_bytes: int | None = None
    events: int = 0


NOTHING = Observed()


def observed(events: Iterable[SpankEvent], submit_time: float | None = None) -> Observed:
    """What the events of a job say of its last run, whatever order they came in.

    A run of a pod is on one node and begins with that node's prolog; what is older is an earlier
    run's, or another job's that had the same id.

    Args:
        submit_time: POSIX seconds; events well before it are another job's. Slurm moves it at a
            requeue, and clocks differ by some seconds, hence "well".
    """
    known = [e for e in events if submit_time is None or e.time >= submit_time - SKEW_SECONDS]
    if not known:
        return NOTHING
    prologs = [e for e in known if e.kind is Kind.ALLOCATED]
    last = max(prologs or known, key=_order)
    run = [e for e in known if e.node == last.node and (not prologs or e.time >= last.time)]
    ends = [e.time for e in run if e.ends]
    told = [e.gpus for e in sorted(run, key=_gpu_order) if e.gpus is not None]
    steps = _steps(run)
    cpu = [e.cpu_s for e in steps if e.cpu_s is not None]
    peaks = [e.peak_bytes for e in steps if e.peak_bytes is not None]
    return Observed(
        node=last.node,
        started=min((e.time for e in run if e.starts), default=None),
        ended=max(ends, default=None),
        gpus=tuple(sorted(set(told[0]))) if told else None,
        cpu_s=sum(cpu) if cpu else None,
        peak_bytes=max(peaks) if peaks else None,
        events=len(run),
    )


# Node and controller may differ by so much; far less than anybody's minimum age of a job's id.
SKEW_SECONDS = 60.0


def _order(event: SpankEvent) -> tuple[float, str, str, int]:
    return event.time, event.node, event.stream, event.seq


def _gpu_order(event: SpankEvent) -> tuple[int, float, str, int]:
    """The job's own list before a step's, which may have fewer."""
    rank = {Kind.ALLOCATED: 0, Kind.RELEASED: 1}.get(event.kind, 2 if event.step == BATCH else 3)
    return rank, event.time, event.stream, event.seq


def _steps(run: Iterable[SpankEvent]) -> list[SpankEvent]:
    """One end of each step, the last."""
    ends: dict[str, SpankEvent] = {}
    for event in sorted(run, key=_order):
        if event.kind is Kind.STEP_END:
            ends[event.step] = event
    return [ends[step] for step in sorted(ends)]


def options(pod_uid: str) -> dict[str, str]:
    """The variables that give a job's UID to the plugin; empty for one that it would not take."""
    return {POD_UID_VARIABLE: pod_uid} if POD_UID.fullmatch(pod_uid) else {}


def as_dict(seen: Observed) -> dict[str, Any]:
    """JSON-able."""
    return {
        "node": seen.node,
        "started": seen.started,
        "ended": seen.ended,
        "gpus": None if seen.gpus is None else list(seen.gpus),
        "cpu_s": seen.cpu_s,
        "peak_bytes": seen.peak_bytes,
        "events": seen.events,
    }


def from_fields(raw: Mapping[str, Any]) -> SpankEvent:
    """An event from checked fields of its JSON (`sources.spank` checks them)."""
    gpus = raw.get("gpus")
    return SpankEvent(
        Kind(raw["event"]),
        raw["cluster"],
        raw["node"],
        float(raw["time"]),
        raw["stream"],
        raw["seq"],
        job=raw.get("job") or 0,
        step=raw.get("step") or "",
        pod=raw.get("pod") or "",
        gpus=None if gpus is None else tuple(gpus),
        cpu_s=raw.get("cpu_s"),
        peak_bytes=raw.get("peak_bytes"),
        dropped=raw.get("dropped") or 0,
    )
