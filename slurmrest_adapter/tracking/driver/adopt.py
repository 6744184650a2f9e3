"""Finding the job of a pod whose submit was never answered.

A job's name leads to it at once, in slurmctld and slurmdbd; its signed identity proves it.
"""

from __future__ import annotations

from slurmrest_adapter.domain import identity
from slurmrest_adapter.domain.errors import NotFound, SlurmError
from slurmrest_adapter.domain.jobs import JobRef
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.deps import Deps

# Slurm's MessageTimeout is 10 s by default; a request may still be on its way until then.
LOOK_FOR_SECONDS = 15.0
_TRIES = frozenset({"intent", "lost", "again"})


def find(deps: Deps, record: PodRecord) -> JobRef | None:
    """The job that carries this pod's identity, None when there is none.

    Raises:
        SlurmError: it could not be asked, which proves nothing.
    """
    for job in deps.gateway.find_by_name(record.spec["name"], record.user):
        proved = identity.read(job.comment or _comment(deps, job.job_id, record.user), deps.key)
        if proved is not None and proved.uid == record.uid:
            return JobRef(job.job_id)
    return None


def adopt(deps: Deps, record: PodRecord) -> PodRecord:
    """The record with its job, if there is one to be found; otherwise the record as it is.

    Raises:
        SlurmError: it could not be asked.
    """
    if record.stage is not Stage.SUBMITTING or record.job_id is not None:
        return record
    found = find(deps, record)
    return record if found is None else submitted(deps, record, found, "found by its name")


def settle(deps: Deps, record: PodRecord) -> JobRef | None:
    """The job of a submit without an answer, or the proof that there is none.

    Looks until a request could no longer be on its way, counted from the last submit or the loss of
    its answer, as the pod's story has them.

    Raises:
        SlurmError: it could not be asked to the end, which proves nothing.
    """
    tries = [line.time for line in deps.store.story(record.uid) if line.event in _TRIES]
    deadline = max(tries, default=record.created) + LOOK_FOR_SECONDS
    while True:
        last = deps.clock() >= deadline
        try:
            found = find(deps, record)
        except SlurmError:
            if last:
                raise
            found = None
        if found is not None or last:
            return found
        deps.sleep(0.5)


def submitted(deps: Deps, record: PodRecord, ref: JobRef, how: str) -> PodRecord:
    """Write down a pod's job."""
    return deps.store.update(
        record.uid,
        "submitted",
        f"Slurm job {ref.job_id}{', ' if how else ''}{how}",
        stage=Stage.SUBMITTED,
        job_id=ref.job_id,
        warnings=[*ref.warnings, *([ref.message] if ref.message else [])],
        error=None,
    )


def _comment(deps: Deps, job_id: int, user: str) -> str:
    """The comment as slurmctld has it; slurmdbd shows it only after the job's end."""
    try:
        return deps.gateway.job(job_id, user).comment
    except NotFound:
        return ""
