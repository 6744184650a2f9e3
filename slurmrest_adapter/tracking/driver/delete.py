"""Ending a pod: cancel what is queued; TERM, the pod's grace period, then cancel what runs.

TERM goes to the batch process alone (the runner), which passes it on to the containers in their
own order. Slurm's own cancel would send it to every process of the job at once. The grace period
is the pod's and is counted here: KillWait, Slurm's own, is a site's choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slurmrest_adapter.domain import identity
from slurmrest_adapter.domain.errors import AdapterError, NotFound
from slurmrest_adapter.domain.jobs import JobInfo, JobRef
from slurmrest_adapter.domain.states import Kind, classify
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.adopt import find, looked_for_until, settle, submitted, unsent
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.follow import Follower, Seen

# After the grace period the runner kills, unmounts and writes its last status: seconds on a loaded
# node. A job that has ended is not waited for.
RUNNER_SECONDS = 10.0
CANCEL_AGAIN_SECONDS = 10.0
AFTER_CANCEL_SECONDS = 60.0


class NotOurs(AdapterError):
    """The job does not carry this pod's signed identity; it is left alone."""


class Ender:
    """Ends one pod's job, a step at a time; between two steps somebody looks at the job.

    Made anew after a restart it goes on: the grace period counts from the time in the store, and
    a second TERM changes nothing in the runner.
    """

    def __init__(self, deps: Deps, uid: str) -> None:
        self._deps = deps
        self._uid = uid
        self._signalled = False
        self._cancelled: float | None = None

    def step(self, seen: Seen) -> None:
        """Do what is due, given the last look.

        Raises:
            NotOurs: the job's identity is another one.
            SlurmError: Slurm refused, or could not be asked; the next step tries again.
        """
        record = seen.record
        if seen.standing.ended or record.job_id is None or record.deleting is None:
            return
        now = self._deps.clock()
        grace = int(record.spec.get("grace_seconds", 30))
        in_grace = grace > 0 and now < record.deleting + grace + RUNNER_SECONDS
        if in_grace and self._signalled:
            return
        if self._cancelled is not None and now - self._cancelled < CANCEL_AGAIN_SECONDS:
            return
        job = _ours(self._deps, record)
        if job is None:
            return
        # As it is now: since the last look a queued job may have started, and has a right to its grace.
        kind = classify(job.states, job.reason).kind
        if kind is Kind.DONE or (in_grace and kind is Kind.FINISHING):
            return
        if in_grace and kind is Kind.RUNNING:
            self._deps.gateway.signal(record.job_id, "TERM", record.user, batch_only=True)
            self._signalled = True
            self._deps.store.update(record.uid, "signal", f"TERM to the runner, {grace} s of grace")
            return
        if kind in (Kind.QUEUED, Kind.HELD):
            # A second copy of the job, kept pending by this one, must find nothing to run.
            self._deps.delivery.discard(record.directory)
        self._deps.gateway.cancel(record.job_id, record.user)
        if self._cancelled is None:
            self._deps.store.update(record.uid, "cancel", "cancelled")
        self._cancelled = now


def ask(deps: Deps, record: PodRecord, grace_seconds: int | None = None) -> PodRecord:
    """Write down that a pod is to be ended; the first asking counts.

    Args:
        grace_seconds: replaces the pod's own terminationGracePeriodSeconds; 0 cancels at once.
    """
    if record.stage in (Stage.REFUSED, Stage.ENDED):
        return record
    changes: dict[str, Any] = {}
    if grace_seconds is not None and grace_seconds != record.spec.get("grace_seconds"):
        changes["spec"] = {**record.spec, "grace_seconds": grace_seconds}
    if record.deleting is None:
        changes["deleting"] = deps.clock()
    if not changes:
        return record
    return deps.store.update(record.uid, "delete", "deletion asked for", **changes)


def delete(
    deps: Deps,
    record: PodRecord,
    grace_seconds: int | None = None,
    tell: Callable[[Seen], None] = lambda _: None,
) -> Seen:
    """End a pod's job and wait for its end. Doing it again is no error.

    Args:
        grace_seconds: see `ask`.
        tell: called after each look while waiting.

    Raises:
        NotOurs: the job's identity is another one.
        SlurmError: Slurm refused, or could not be asked.
    """
    record = _settled(deps, ask(deps, record, grace_seconds))
    follower = Follower(deps, record.uid)
    if record.job_id is None or record.stage in (Stage.REFUSED, Stage.ENDED):
        return follower.remembered()
    ender = Ender(deps, record.uid)
    grace = int(record.spec.get("grace_seconds", 30))
    # Slurm's KillWait and the node's own tidying up come after a cancel.
    deadline = deps.clock() + grace + RUNNER_SECONDS + AFTER_CANCEL_SECONDS
    while True:
        seen = follower.look()
        tell(seen)
        if seen.standing.ended or deps.clock() >= deadline:
            return seen
        ender.step(seen)
        deps.sleep(0.25)


def _settled(deps: Deps, record: PodRecord) -> PodRecord:
    """The record with its job; or without one for good, where the submit left none.

    Whoever is still submitting sees the deletion before trying again, and cancels what it gets.
    """
    if record.stage is not Stage.SUBMITTING or record.job_id is not None:
        return record
    return _without(deps, record, settle(deps, record))


def drop(deps: Deps, record: PodRecord) -> PodRecord:
    """`_settled` without waiting: what can be said now of a pod that was deleted before it had a job.

    Raises:
        SlurmError: it could not be asked; the next try may.
    """
    if record.stage is not Stage.SUBMITTING or record.job_id is not None:
        return record
    if unsent(deps, record):
        return _without(deps, record, None)
    if deps.clock() < looked_for_until(deps, record):
        return record
    return _without(deps, record, find(deps, record))


def _without(deps: Deps, record: PodRecord, found: JobRef | None) -> PodRecord:
    if found is not None:
        return submitted(deps, record, found, "found by its name")
    deps.delivery.discard(record.directory)  # a request that is later than late finds nothing to run
    words = "the pod was deleted before Slurm had its job"
    return deps.store.update(record.uid, "deleted", words, stage=Stage.REFUSED, error=words)


def _ours(deps: Deps, record: PodRecord) -> JobInfo | None:
    """The job, proved to be this pod's; None when slurmctld knows it no more."""
    assert record.job_id is not None
    try:
        job = deps.gateway.job(record.job_id, record.user)
    except NotFound:
        return None
    proved = identity.read(job.comment, deps.key)
    if proved is None or proved.uid != record.uid:
        raise NotOurs(
            f"Slurm job {record.job_id} does not carry the identity of pod {record.uid}; left alone"
        )
    return job
