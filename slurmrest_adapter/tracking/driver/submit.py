"""Submitting a pod: at most one run for each UID.

The intent is written before the call, so that whatever happens between the call and its answer,
somebody knows there may be a job. A call whose answer was lost is never simply repeated: the job
is looked up by its name first, for longer than Slurm's own message time-out. Should a twin slip
through all the same, ``singleton`` keeps it pending until the first has ended, and the runner's
claim makes it a no-op then.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from slurmrest_adapter.domain import identity
from slurmrest_adapter.domain.errors import AdapterError, MaybeAccepted, Rejected, SlurmError
from slurmrest_adapter.domain.jobs import JobRef
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.domain.pod import PodView, view
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.translate.pod import Ownership, Translated, translate

# Slurm's MessageTimeout is 10 s by default; a request may still be on its way until then.
LOOK_FOR_SECONDS = 15.0


def submit(deps: Deps, raw: Any) -> PodRecord:
    """Make a pod's job.

    A UID that was submitted before gives the record it has; nothing is submitted twice.

    Args:
        raw: a v1.Pod with resolved references, a name and a UID.

    Raises:
        PodError: the pod cannot become a job; nothing was written.
        ConfigError: the plan cannot be delivered.
        SlurmError: Slurm refused (the record says so) or could not be asked.
    """
    pod = view(raw)
    known = deps.store.get(pod.uid)
    if known is not None and known.stage in (Stage.SUBMITTED, Stage.ENDED):
        return known
    directory = known.directory if known else deps.delivery.reserve()
    made = translate(pod, _owner(deps, pod), deps.site, deps.key, deps.delivery.on_nodes(directory))
    record = deps.store.intend(_record(deps, pod, made, directory))
    if record.directory != directory:
        return record  # somebody else was faster with the same UID
    if record.stage is Stage.REFUSED:
        fresh = _record(deps, pod, made, directory)
        deps.store.update(
            pod.uid, "intent", "to be submitted again", stage=Stage.SUBMITTING, spec=fresh.spec,
            skeleton=fresh.skeleton, user=fresh.user, error=None,
        )  # fmt: skip
    try:
        deps.delivery.put(directory, made.plan, made.spec.uid, made.spec.gid)
        ref = _find(deps, record, made.spec) if known is not None else None
        ref = ref or _submit(deps, record, made.spec)
    except MaybeAccepted as error:
        deps.store.update(pod.uid, "lost", str(error), error=str(error))
        raise
    except AdapterError as error:
        deps.store.update(pod.uid, "refused", str(error), stage=Stage.REFUSED, error=_words(error))
        raise
    return deps.store.update(
        pod.uid,
        "submitted",
        f"Slurm job {ref.job_id}",
        stage=Stage.SUBMITTED,
        job_id=ref.job_id,
        warnings=[*ref.warnings, *([ref.message] if ref.message else [])],
        error=None,
    )


def _owner(deps: Deps, pod: PodView) -> Ownership:
    owner = deps.mapper.owner(pod)
    return Ownership(owner.user, owner.account, owner.qos, owner.partition, owner.uid, owner.gid)


def _record(deps: Deps, pod: PodView, made: Translated, directory: str) -> PodRecord:
    return PodRecord(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        cluster=deps.site.cluster,
        user=made.spec.user,
        stage=Stage.SUBMITTING,
        spec=asdict(made.spec),
        skeleton={
            "containers": [{"name": c.name, "init": c.init, "image": c.image} for c in pod.containers()],
            "notes": list(made.notes),
        },
        directory=directory,
        created=deps.clock(),
    )


def _submit(deps: Deps, record: PodRecord, spec: JobSpec) -> JobRef:
    try:
        return deps.gateway.submit(spec, deps.script)
    except MaybeAccepted as lost:
        deps.store.update(record.uid, "lost", f"{lost}; looking for the job by its name")
        deadline = deps.clock() + LOOK_FOR_SECONDS
        while True:
            found = _find(deps, record, spec)
            if found is not None:
                return found
            if deps.clock() >= deadline:
                raise
            deps.sleep(0.5)


def _find(deps: Deps, record: PodRecord, spec: JobSpec) -> JobRef | None:
    """The job that an earlier submit of this pod may have made, proved by its signed identity."""
    try:
        candidates = deps.gateway.find_by_name(spec.name, spec.user)
    except SlurmError:
        return None
    for job in candidates:
        proved = identity.read(job.comment or _comment(deps, job.job_id, spec.user), deps.key)
        if proved is not None and proved.uid == record.uid:
            return JobRef(job.job_id)
    return None


def _comment(deps: Deps, job_id: int, user: str) -> str:
    """The comment as slurmctld has it; slurmdbd shows it only after the job's end."""
    try:
        return deps.gateway.job(job_id, user).comment
    except SlurmError:
        return ""


def _words(error: AdapterError) -> str:
    return error.words if isinstance(error, Rejected) else str(error)
