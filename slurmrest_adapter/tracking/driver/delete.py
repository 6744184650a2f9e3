"""Ending a pod: cancel what is queued; TERM, the pod's grace period, then cancel what runs.

TERM goes to the batch process alone (the runner), which passes it on to the containers in their
own order. Slurm's own cancel would send it to every process of the job at once. The grace period
is the pod's and is counted here: KillWait, Slurm's own, is a site's choice.
"""

from __future__ import annotations

from collections.abc import Callable

from slurmrest_adapter.domain import identity
from slurmrest_adapter.domain.errors import AdapterError, NotFound
from slurmrest_adapter.domain.jobs import JobInfo
from slurmrest_adapter.domain.states import Kind, classify
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.adopt import settle, submitted
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.follow import Follower, Seen

# The runner writes its last status after the containers' grace has passed.
RUNNER_SECONDS = 2.0


class NotOurs(AdapterError):
    """The job does not carry this pod's signed identity; it is left alone."""


def delete(
    deps: Deps,
    record: PodRecord,
    grace_seconds: int | None = None,
    tell: Callable[[Seen], None] = lambda _: None,
) -> Seen:
    """End a pod's job and wait for its end. Doing it again is no error.

    Args:
        grace_seconds: replaces the pod's own terminationGracePeriodSeconds; 0 cancels at once.
        tell: called after each look while waiting.

    Raises:
        NotOurs: the job's identity is another one.
        SlurmError: Slurm refused, or could not be asked.
    """
    if record.deleting is None and record.stage not in (Stage.REFUSED, Stage.ENDED):
        deps.store.update(record.uid, "delete", "deletion asked for", deleting=deps.clock())
    record = _settled(deps, record)
    follower = Follower(deps, record.uid)
    if record.job_id is None or record.stage in (Stage.REFUSED, Stage.ENDED):
        return follower.remembered()
    job = _ours(deps, record)
    if job is None:
        return follower.look()
    grace = grace_seconds if grace_seconds is not None else int(record.spec.get("grace_seconds", 30))
    standing = classify(job.states, job.reason)
    if standing.kind is Kind.RUNNING and grace > 0:
        deps.gateway.signal(job.job_id, "TERM", record.user, batch_only=True)
        deps.store.update(record.uid, "signal", f"TERM to the runner, {grace} s of grace")
        seen = _wait(deps, follower, grace + RUNNER_SECONDS, tell)
        if seen.standing.ended:
            return seen
    if not standing.ended:
        deps.gateway.cancel(job.job_id, record.user)
        deps.store.update(record.uid, "cancel", "cancelled")
    # Slurm's KillWait and the node's own tidying up come after a cancel.
    return _wait(deps, follower, 60.0, tell)


def _settled(deps: Deps, record: PodRecord) -> PodRecord:
    """The record with its job; or without one for good, where the submit left none.

    Whoever is still submitting sees the deletion before trying again, and cancels what it gets.
    """
    if record.stage is not Stage.SUBMITTING or record.job_id is not None:
        return record
    found = settle(deps, record)
    if found is not None:
        return submitted(deps, record, found, "found by its name")
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


def _wait(deps: Deps, follower: Follower, seconds: float, tell: Callable[[Seen], None]) -> Seen:
    deadline = deps.clock() + seconds
    while True:
        seen = follower.look()
        tell(seen)
        if seen.standing.ended or deps.clock() >= deadline:
            return seen
        deps.sleep(0.25)
