"""After a submit the job is read once, and what the site made of it is kept with the pod."""

from __future__ import annotations

from dataclasses import asdict

from slurmrest_adapter.domain import readback
from slurmrest_adapter.domain.errors import SlurmError
from slurmrest_adapter.domain.jobs import JobInfo
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.tracking.driver.deps import Deps


def read_back(deps: Deps, record: PodRecord) -> PodRecord:
    """The record with what the site changed. To fail at it is no error: the first look does it then."""
    if record.job_id is None:
        return record
    try:
        job = deps.gateway.job(record.job_id, record.user)
    except SlurmError:
        return record
    return compare(deps, record, job)


def compare(deps: Deps, record: PodRecord, job: JobInfo) -> PodRecord:
    """Write down what differs between the record's spec and its job, once."""
    if record.changed is not None or job.job_id != record.job_id:
        return record
    changed = [asdict(change) for change in readback.changes(record.spec, job)]
    words = readback.words(changed)
    text = f"the site set {words}" if words else ""
    return deps.store.update(record.uid, "read-back" if words else "", text, changed=changed)
