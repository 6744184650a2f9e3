"""One tiny job for each partition, as a mapped user, that tells what its node has.

Its directory is made like a pod's and removed afterwards; a job that does not start in time is
cancelled.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurmrest_adapter.doctor import node, told
from slurmrest_adapter.doctor.script import DIRECTORY_VARIABLE
from slurmrest_adapter.domain.errors import AdapterError, NotFound, SlurmError, Unavailable
from slurmrest_adapter.domain.jobs import JobInfo, JobRef
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.domain.states import classify
from slurmrest_adapter.identity.base import Owner
from slurmrest_adapter.slurm.base import SlurmGateway
from slurmrest_adapter.sources.userfiles import read_file
from slurmrest_adapter.translate.pod import PATH

COMMENT = "slurmrest-adapter doctor"
_STEP_SECONDS = 0.25
# A shared file system may show a new file this much later on another host.
_LATE_SECONDS = 5.0
_MOST_BYTES = 200_000


@dataclass
class NodeJob:
    """One partition's job and what became of it.

    Attributes:
        partition: None is Slurm's default.
        directory: its name below the shared directory.
        error: why there was no job, or why it could not be followed.
        info: as it was read last; `first` is the read-back right after the submit.
        over: it ended; otherwise it was cancelled, or could not be asked any more.
        found: what the node told, None when nothing came.
    """

    partition: str | None
    owner: Owner
    directory: str = field(default_factory=lambda: secrets.token_hex(16))
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    spec: JobSpec | None = None
    ref: JobRef | None = None
    error: AdapterError | None = None
    first: JobInfo | None = None
    info: JobInfo | None = None
    over: bool = False
    found: told.Told | None = None
    untrusted: str = ""


@dataclass(frozen=True)
class Errand:
    """What all jobs of one look have in common.

    Attributes:
        shared, on_nodes: the shared directory here and on the nodes.
        question: what the nodes are asked: ``registries``, ``cache`` and ``runner``.
        timeout: seconds from the first submit.
        say: progress, a line each.
    """

    gateway: SlurmGateway
    shared: Path
    on_nodes: str
    script: str
    question: dict[str, Any]
    timeout: float
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def look(errand: Errand, jobs: Sequence[NodeJob]) -> None:
    """Submit all, follow them to their ends or the time-out, read what they wrote. Leaves nothing."""
    begun = errand.clock()
    with contextlib.ExitStack() as stack:
        for job in jobs:
            stack.enter_context(_directory(errand, job))
            _submit(errand, job)
        _follow(errand, [job for job in jobs if job.ref is not None], begun + errand.timeout)
        for job in jobs:
            if job.over:
                _read(errand, job)


@contextlib.contextmanager
def _directory(errand: Errand, job: NodeJob) -> Iterator[None]:
    """The job's directory, 0700 and its user's, with the question in it; the job is ended before it goes."""
    final = errand.shared / job.directory
    building = errand.shared / f".new-{job.directory}"
    try:
        try:
            _make(building, job, {**errand.question, "nonce": job.nonce})
            building.rename(final)
        except OSError as error:
            job.error = AdapterError(f"{final} cannot be made: {error.strerror}")
        yield
    finally:
        _end(errand, job)
        for path in (building, final):
            shutil.rmtree(path, ignore_errors=True)


def _make(path: Path, job: NodeJob, question: dict[str, Any]) -> None:
    path.mkdir(mode=0o700)
    asked = path / node.QUESTION
    with os.fdopen(
        os.open(asked, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w", encoding="ascii"
    ) as file:
        json.dump(question, file)
    if os.geteuid() == 0 and job.owner.uid is not None and job.owner.gid is not None:
        os.chown(asked, job.owner.uid, job.owner.gid)
        os.chown(path, job.owner.uid, job.owner.gid)


def _spec(errand: Errand, job: NodeJob) -> JobSpec:
    owner = job.owner
    return JobSpec(
        name=f"slurmrest-doctor-{secrets.token_hex(6)}",
        comment=COMMENT,
        user=owner.user,
        account=owner.account,
        partition=job.partition,
        qos=owner.qos,
        cpus=1,
        memory_mib=100,
        time_limit_minutes=2,
        dependency="",
        uid=owner.uid,
        gid=owner.gid,
        environment={
            "PATH": PATH,
            "HOME": "/",
            "USER": owner.user,
            "LANG": "C.UTF-8",
            DIRECTORY_VARIABLE: f"{errand.on_nodes}/{job.directory}",
        },
    )


def _submit(errand: Errand, job: NodeJob) -> None:
    if job.error is not None:
        return
    job.spec = _spec(errand, job)
    try:
        job.ref = errand.gateway.submit(job.spec, errand.script)
    except AdapterError as error:
        # MaybeAccepted too: without an id it cannot be followed. It ends by itself within seconds.
        job.error = error
        return
    errand.say(f"asking a node of partition {job.partition or 'default'} by job {job.ref.job_id} …")
    with contextlib.suppress(SlurmError):
        job.first = job.info = errand.gateway.job(job.ref.job_id, job.owner.user)


def _follow(errand: Errand, jobs: list[NodeJob], until: float) -> None:
    said: dict[int, str] = {}
    while True:
        open_ = [job for job in jobs if not job.over]
        for job in open_:
            _look_at(errand, job, said)
        if all(job.over for job in jobs) or errand.clock() >= until:
            return
        errand.sleep(_STEP_SECONDS)


def _look_at(errand: Errand, job: NodeJob, said: dict[int, str]) -> None:
    assert job.ref is not None
    job_id = job.ref.job_id
    try:
        job.info = errand.gateway.job(job_id, job.owner.user)
        job.error = None
    except NotFound:
        job.over = True  # it ended, and slurmctld has forgotten it already
        return
    except Unavailable as error:
        job.error = error  # asked again at the next round
        return
    except SlurmError as error:
        job.error, job.over = error, True
        return
    standing = classify(job.info.states, job.info.reason)
    job.over = standing.ended
    words = standing.words + (f" ({job.info.reason})" if job.info.reason not in ("", "None") else "")
    if said.get(job_id) != words:
        said[job_id] = words
        errand.say(f"job {job_id}: {words}")


def _read(errand: Errand, job: NodeJob) -> None:
    """What the job wrote, by the rules for files that a job's user owns."""
    until = errand.clock() + _LATE_SECONDS
    while True:
        try:
            data = read_file(errand.shared, (job.directory, node.FINDINGS), job.owner.uid, _MOST_BYTES)
            if data is not None:
                job.found = told.parse(data)
                return
        except AdapterError as error:
            job.untrusted = str(error)
            return
        # A failed job left nothing; only a good one's file may be late.
        code = job.info.exit_code.return_code if job.info else None
        if code or errand.clock() >= until:
            return
        errand.sleep(_STEP_SECONDS)


def _end(errand: Errand, job: NodeJob) -> None:
    if job.ref is not None and not job.over:
        with contextlib.suppress(AdapterError):
            errand.gateway.cancel(job.ref.job_id, job.owner.user)
