"""Finding the job of a pod whose submit was never answered.

A job's name leads to it at once, in slurmctld and slurmdbd; its signed identity proves it.
"""

from __future__ import annotations

from slurmrest_adapter.domain import identity
from slurmrest_adapter.domain.errors import NotFound
from slurmrest_adapter.domain.jobs import JobRef
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.deps import Deps


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
