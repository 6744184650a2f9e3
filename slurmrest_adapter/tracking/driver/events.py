"""Taking SPANK events: proved, read, kept, counted; and the pods they are about are looked at soon.

An event changes nothing by itself. Slurm's own answer says what is so; the event is why it was
asked. So a forged, replayed or strange one costs a counter, and the worst that a true one can do is
a question that would have been asked a little later anyway.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import structlog

from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.spank import Kind, SpankEvent
from slurmrest_adapter.sources import spank
from slurmrest_adapter.store.base import EventStore, JobOwner, Stage, Store

log = structlog.get_logger(__name__)

# A spool that was forgotten over a holiday is still news; an older event is a replay or a mistake.
RETENTION_SECONDS = 14 * 86400.0
# A node's clock may be wrong; by more than this its times would mislead.
AHEAD_SECONDS = 3600.0
# After its end a job's last events are on their way for seconds; later its id is another job's.
AFTER_END_SECONDS = 3600.0
_SAY_EVERY = 60.0


class Outcome(StrEnum):
    """What became of an event; the names of the counters."""

    TAKEN = "taken"
    DUPLICATE = "duplicate"
    FORGED = "forged"  # unsigned, or signed with another key
    MALFORMED = "malformed"
    STALE = "stale"  # too old, or of a clock that is far ahead
    OTHER_CLUSTER = "other_cluster"
    UNKNOWN_JOB = "unknown_job"
    TEST = "test"


LOOKS = "looks"  # questions that events caused


class _Kept(NamedTuple):
    at: int  # among what was posted
    event: SpankEvent
    body: bytes
    owner: JobOwner


class Intake:
    """Takes events, one thread at a time.

    Args:
        events: keeps them.
        store: knows which jobs are ours.
        key: what nodes sign with.
        cluster: what they have to say; see docs/spank.md.
        hint: called with a pod's UID, and whether its job's end is the news.
        clock: POSIX seconds.
    """

    def __init__(
        self,
        events: EventStore,
        store: Store,
        key: bytes,
        cluster: str,
        hint: Callable[[str, bool], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._events = events
        self._store = store
        self._proof = spank.Proof(key)
        self._cluster = cluster
        self._hint = hint
        self._clock = clock
        self._said: dict[Outcome, float] = {}

    def take(self, posted: Sequence[tuple[bytes, str]]) -> list[Outcome]:
        """What becomes of each body with its signature; they are kept when this returns.

        Raises:
            Exception: they could not be kept. Their pods are looked at all the same.
        """
        outcomes: list[Outcome] = []
        heard: list[SpankEvent] = []
        keep: list[_Kept] = []
        owners: dict[tuple[int, str], JobOwner | None] = {}
        for body, signature in posted:
            outcome, event = self._judge(body, signature)
            if outcome is Outcome.TAKEN and event is not None:
                heard.append(event)
                asked = (event.job, event.pod)
                if asked not in owners:
                    # The UID in an event is whatever a user put there, so it counts only for a pod whose
                    # own job is not known yet: the job may start before its submit is answered.
                    owners[asked] = self._store.owner(event.job, event.pod)
                owner = owners[asked]
                if owner is None or _another_jobs(event, owner):
                    outcome = Outcome.UNKNOWN_JOB
                else:
                    keep.append(_Kept(len(outcomes), event, body, owner))
            outcomes.append(outcome)
        counts = Counter(str(outcome) for outcome in outcomes if outcome is not Outcome.TAKEN)
        new = [True] * len(keep)
        try:
            new = self._events.add([(kept.event, kept.body) for kept in keep], heard, counts)
        finally:
            self._tell([kept for kept, is_new in zip(keep, new, strict=True) if is_new])
        for kept, is_new in zip(keep, new, strict=True):
            if not is_new:
                outcomes[kept.at] = Outcome.DUPLICATE
        return outcomes

    def counters(self) -> Mapping[str, int]:
        """Every counter, 0 for what has not happened."""
        return {**dict.fromkeys((*map(str, Outcome), LOOKS), 0), **self._events.counters()}

    def _judge(self, body: bytes, signature: str) -> tuple[Outcome, SpankEvent | None]:
        """Proof first: nothing of an unproved body is looked at."""
        if not self._proof.holds(body, signature):
            return self._say(Outcome.FORGED, "an event is not signed with our key"), None
        try:
            event = spank.parse(body)
        except Invalid as error:
            return self._say(Outcome.MALFORMED, str(error)), None
        if event.cluster != self._cluster:
            return self._say(Outcome.OTHER_CLUSTER, f"an event of cluster {event.cluster}"), event
        now = self._clock()
        if not now - RETENTION_SECONDS <= event.time <= now + AHEAD_SECONDS:
            return self._say(
                Outcome.STALE, f"an event of {event.node} is {now - event.time:.0f} s old"
            ), event
        return (Outcome.TEST if event.kind is Kind.TEST else Outcome.TAKEN), event

    def _tell(self, keep: Sequence[_Kept]) -> None:
        told: dict[str, bool] = {}
        for _, event, _, owner in keep:
            if owner.stage in (Stage.SUBMITTING, Stage.SUBMITTED):
                told[owner.uid] = told.get(owner.uid, False) or event.ends
        for uid, ended in told.items():
            self._hint(uid, ended)

    def tidy(self) -> None:
        """Forget what is old. May wait for the disk; in any thread, now and then."""
        self._events.forget(self._clock() - RETENTION_SECONDS)

    def _say(self, outcome: Outcome, words: str) -> Outcome:
        """Log it, but not as often as somebody may post it."""
        now = self._clock()
        if now - self._said.get(outcome, float("-inf")) >= _SAY_EVERY:
            self._said[outcome] = now
            log.warning("spank event not taken", why=words, outcome=str(outcome))
        return outcome


def _another_jobs(event: SpankEvent, owner: JobOwner) -> bool:
    """Is it long after the end of the pod's job? Job ids come back."""
    over = owner.stage is Stage.ENDED and owner.ended is not None
    return over and event.time > (owner.ended or 0) + AFTER_END_SECONDS
