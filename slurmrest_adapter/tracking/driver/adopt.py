"""Finding the job of a pod whose submit was never answered.

A job's name leads to it at once, in slurmctld and slurmdbd; its signed identity proves it.
"""

from __future__ import annotations

from slurmrest_adapter.domain import identity
from slurmrest_adapter.domain.errors import NotFound, SlurmError
from slurmrest_adapter.domain.jobs import JobRef
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.deps import LOOK_FOR_SECONDS as LOOK_FOR_SECONDS
from slurmrest_adapter.tracking.driver.deps import Deps

# Lines of the story after which a request may be on its way, and the one that says that none is.
_TRIES = frozenset({"intent", "lost", "again"})
UNSENT = "unsent"
_FIRST_PAUSE = 0.5  # seconds


def find(deps: Deps, record: PodRecord) -> JobRef | None:
    """The job that carries this pod's identity, None when there is none.

    Of several it is the first that Slurm took: ``singleton`` lets that one run, and the runner
    makes the others no-ops.

    Raises:
        SlurmError: it could not be asked, which proves nothing.
    """
    named = deps.gateway.find_by_name(record.spec["name"], record.user)
    for job in sorted(named, key=lambda job: (job.submit_time or 0, job.job_id)):
        proved = identity.read(job.comment or _comment(deps, job.job_id, record.user), deps.key)
        if proved is not None and proved.uid == record.uid:
            return JobRef(job.job_id)
    return None


def adopt(deps: Deps, record: PodRecord) -> PodRecord:
    """The record with its job, if there is one to be found; otherwise the record as it is.

    Raises:
        SlurmError: it could not be asked.
    """
    if record.stage is not Stage.SUBMITTING or record.job_id is not None or unsent(deps, record):
        return record
    found = find(deps, record)
    return record if found is None else submitted(deps, record, found, "found by its name")


def elder(deps: Deps, record: PodRecord) -> PodRecord:
    """The record of a job that waits for an earlier one of the same pod, with that one in its place.

    A submit that was delivered twice may be answered with the second job's id, and a late one may
    overtake us. The first job is the one that runs the pod, so it is the one to follow and to end.

    Raises:
        SlurmError: it could not be asked.
    """
    first = find(deps, record)
    if first is None or first.job_id == record.job_id:
        return record
    words = f"Slurm job {first.job_id} is the pod's; job {record.job_id} waits for it and will do nothing"
    return deps.store.update(
        record.uid, "twin", words, job_id=first.job_id, job={}, submit_time=None, restart_count=0
    )


def unsent(deps: Deps, record: PodRecord) -> bool:
    """True when the last submit is known not to have reached slurmrestd: there is nothing to look for."""
    tries = [line.event for line in deps.store.story(record.uid) if line.event in {*_TRIES, UNSENT}]
    return tries[-1:] == [UNSENT]


def looked_for_until(deps: Deps, record: PodRecord) -> float:
    """When no request of this pod can be on its way any more, POSIX seconds."""
    tries = [line.time for line in deps.store.story(record.uid) if line.event in _TRIES]
    return max(tries, default=record.created) + deps.look_for


def settle(deps: Deps, record: PodRecord) -> JobRef | None:
    """The job of a submit without an answer, or the proof that there is none.

    Looks until a request could no longer be on its way, counted from the last submit or the loss of
    its answer, as the pod's story has them.

    Raises:
        SlurmError: it could not be asked to the end, which proves nothing.
    """
    if unsent(deps, record):
        return None
    deadline = looked_for_until(deps, record)
    pause = _FIRST_PAUSE
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
        # Less and less often: a look may cost Slurm its whole list of jobs.
        deps.sleep(min(pause, max(_FIRST_PAUSE, deadline - deps.clock())))
        pause *= 2


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
