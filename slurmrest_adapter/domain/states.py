"""What a set of Slurm's state words means; the only place that decides it.

Slurm lists one base word and any number of flags (``[PENDING, COMPLETING]``, ``[RUNNING,
CONFIGURING]``). Words are compared whole, never by prefix: CONFIGURING is no CANCELLED, NODE_FAIL
no FAILED. A word nobody has heard of makes the answer *unknown*, which changes no pod and keeps
us asking.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Where a job stands, in the words the rest of the project uses."""

    QUEUED = "queued"
    HELD = "held"
    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    DONE = "done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Standing:
    """A classified set of words.

    Attributes:
        kind: where the job stands.
        outcome: the base word of the end (or LAUNCH_FAILED), "" before the end.
        words: the set as Slurm gave it, joined by ``+`` for people.
    """

    kind: Kind
    outcome: str
    words: str

    @property
    def ended(self) -> bool:
        """True when nothing more will happen to this run."""
        return self.kind is Kind.DONE


# No word of Slurm's: neither slurmctld nor slurmdbd knows the job any more, and nothing else told
# how it ended. Ours, so that a record that was closed this way stays closed.
LOST = "LOST"
TERMINAL = frozenset(
    {
        LOST,
        "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL",
        "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
    }
)  # fmt: skip
ALIVE = frozenset({"PENDING", "RUNNING", "SUSPENDED"})
BASE = TERMINAL | ALIVE
# A requeue gives a terminal base word for a moment; it is no end.
COMES_BACK = frozenset({"REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "REQUEUE_FED", "RESV_DEL_HOLD"})
HOLDS = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
# Processes or data are still being tidied up: the nodes are not free yet.
NOT_OVER = frozenset({"COMPLETING", "STAGE_OUT"})
NEUTRAL = frozenset(
    {
        "RESIZING", "STOPPED", "RECONFIG_FAIL", "SIGNALING", "EXPEDITING", "LAUNCH_FAILED",
        "CONFIGURING", "POWER_UP_NODE", "UPDATE_DB",
    }
)  # fmt: skip
KNOWN = BASE | COMES_BACK | NOT_OVER | NEUTRAL
HOLD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "Resv_Del_Hold"})


def classify(words: Iterable[str], reason: str = "") -> Standing:
    """What Slurm's words mean.

    Args:
        words: the job's state list, base word and flags in any order.
        reason: Slurm's state reason; tells a held job from a waiting one.
    """
    seen = tuple(words)
    said = "+".join(seen)
    bases = [word for word in seen if word in BASE]
    flags = set(seen) - BASE
    if len(bases) != 1 or not flags <= KNOWN:
        # REVOKED (a federation's sibling) ends up here on purpose: another cluster has the job.
        return Standing(Kind.UNKNOWN, "", said)
    base = bases[0]
    if base in TERMINAL:
        if flags & COMES_BACK:
            return Standing(Kind.HELD if flags & HOLDS else Kind.QUEUED, "", said)
        if flags & NOT_OVER:
            return Standing(Kind.FINISHING, "", said)
        return Standing(Kind.DONE, "LAUNCH_FAILED" if "LAUNCH_FAILED" in flags else base, said)
    if base == "PENDING":
        held = flags & HOLDS or reason in HOLD_REASONS
        return Standing(Kind.HELD if held else Kind.QUEUED, "", said)
    if flags & NOT_OVER:
        return Standing(Kind.FINISHING, "", said)
    if flags & {"CONFIGURING", "POWER_UP_NODE"}:
        return Standing(Kind.STARTING, "", said)
    return Standing(Kind.RUNNING, "", said)
