"""Submitting a pod: at most one run for each UID.

The intent is written before the call, so that whatever happens between the call and its answer,
somebody knows there may be a job. A call whose answer was lost is never simply repeated: the job
is looked up by its name first, for longer than Slurm's own message time-out. Should a twin slip
through all the same, ``singleton`` keeps it pending until the first has ended, and the runner's
claim makes it a no-op then.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from slurmrest_adapter.domain.errors import AdapterError, MaybeAccepted, Rejected, SlurmError, Unavailable
from slurmrest_adapter.domain.jobs import JobRef
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.domain.pod import PodView, view
from slurmrest_adapter.domain.volumes import NONE, Objects
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.adopt import UNSENT, settle, submitted, unsent
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.readback import read_back
from slurmrest_adapter.translate.pod import Ownership, Translated, translate


def submit(deps: Deps, raw: Any, objects: Objects = NONE) -> PodRecord:
    """Make a pod's job.

    A UID that was submitted before gives the record it has; nothing is submitted twice.

    Args:
        raw: a v1.Pod with resolved references, a name and a UID.
        objects: what its volumes are made of.

    Raises:
        PodError: the pod cannot become a job; nothing was written.
        ConfigError: the plan cannot be delivered.
        SlurmError: Slurm refused (the record says so) or could not be asked.
    """
    pod = view(raw)
    known = deps.store.get(pod.uid)
    if known is not None and (known.stage in (Stage.SUBMITTED, Stage.ENDED) or known.deleting is not None):
        return known
    unanswered = known is not None and known.stage is Stage.SUBMITTING
    # After a refusal the pod may have been mended, so its plan is a new one too.
    directory = known.directory if known and unanswered else deps.delivery.reserve()
    made = translate(pod, _owner(deps, pod), deps.site, deps.key, deps.delivery.on_nodes(directory), objects)
    record = deps.store.intend(_record(deps, pod, made, directory))
    if known is not None and record.stage is Stage.REFUSED:
        fresh = _record(deps, pod, made, directory)
        record = deps.store.update(
            pod.uid, "intent", "to be submitted again", stage=Stage.SUBMITTING, spec=fresh.spec,
            skeleton=fresh.skeleton, user=fresh.user, directory=directory, error=None,
        )  # fmt: skip
    if record.directory != directory:
        return record  # somebody else was faster with the same UID
    # A refusal left no job; an intent without an answer may have. Not to have been able to look
    # is no refusal: the intent stays as it is.
    ref = settle(deps, record) if unanswered else None
    if unanswered and ref is None:
        # Written before the call, like an intent: from here on a request may be on its way again.
        _again(deps, record)
    try:
        carried = deps.delivery.put(directory, made.plan, made.spec.uid, made.spec.gid)
        spec = replace(made.spec, environment={**made.spec.environment, **carried})
        ref = ref or _submit(deps, record, spec)
    except MaybeAccepted as error:
        deps.store.update(pod.uid, "lost", str(error), error=str(error))
        raise
    except Unavailable as error:
        # Nothing was sent, and not to have been able to ask is no refusal: whoever asked for the pod
        # may ask again.
        deps.store.update(pod.uid, UNSENT, str(error), error=str(error))
        raise
    except AdapterError as error:
        deps.store.update(pod.uid, "refused", str(error), stage=Stage.REFUSED, error=_words(error))
        deps.delivery.discard(directory)
        raise
    done = submitted(deps, record, ref, "")
    if done.deleting is not None:
        # Deleted while the submit was on its way: nobody else knows the job's id yet.
        deps.gateway.cancel(ref.job_id, done.user)
        return done
    return read_back(deps, done)


def give_up(deps: Deps, uid: str, words: str) -> None:
    """Of a pod whose submit never reached Slurm, and for which nobody will ask again."""
    record = deps.store.get(uid)
    if record is not None and record.stage is Stage.SUBMITTING and unsent(deps, record):
        deps.store.update(uid, "refused", "given up", stage=Stage.REFUSED, error=words)


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
            "containers": [
                {"name": c.name, "init": c.init, "image": c.image, "sidecar": c.sidecar}
                for c in pod.containers()
            ],
            "notes": list(made.notes),
            "deadline": made.plan.deadline_seconds,
        },
        directory=directory,
        created=deps.clock(),
    )


def _submit(deps: Deps, record: PodRecord, spec: JobSpec) -> JobRef:
    """Submit; a lost answer is settled by looking, and only then, once, by doing it again."""
    try:
        return deps.gateway.submit(spec, deps.script)
    except MaybeAccepted as lost:
        deps.store.update(record.uid, "lost", f"{lost}; looking for the job by its name")
        try:
            found = settle(deps, record)
        except SlurmError:
            raise lost from None
        if found is not None:
            return found
    _not_deleted(deps, record)
    _again(deps, record)
    return deps.gateway.submit(spec, deps.script)


def _again(deps: Deps, record: PodRecord) -> None:
    deps.store.update(record.uid, "again", "there is no such job; submitting it again")


def _not_deleted(deps: Deps, record: PodRecord) -> None:
    now = deps.store.get(record.uid)
    if now is not None and now.deleting is not None:
        raise Rejected(0, "the pod was deleted before Slurm had its job")


def _words(error: AdapterError) -> str:
    return error.words if isinstance(error, Rejected) else str(error)
