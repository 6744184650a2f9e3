"""v0.0.42: Slurm 24.11 to 26.05."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import requests

from generated_client.v0_0_42.api.slurm import (
    delete_job,
    get_job,
    get_jobs,
    get_jobs_state,
    get_nodes,
    get_partitions,
    get_ping,
    post_job_submit,
)
from generated_client.v0_0_42.api.slurmdb import get_job as get_accounting_job
from generated_client.v0_0_42.api.slurmdb import get_jobs as get_accounting_jobs
from generated_client.v0_0_42.client import Request
from generated_client.v0_0_42.errors import UnexpectedResponse
from generated_client.v0_0_42.models import JobDescMsg, JobSubmitReq, UintNoVal
from generated_client.v0_0_42.types import UNSET
from slurmrest_adapter.domain.jobs import (
    AccountingRecord,
    FoundJob,
    JobInfo,
    JobRef,
    JobState,
    NodeInfo,
    PartitionInfo,
    Ping,
)
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.slurm.bindings import convert, fast
from slurmrest_adapter.slurm.bindings.base import KillRow, Operation
from slurmrest_adapter.slurm.bindings.environment import environment_list
from slurmrest_adapter.slurm.session import AnswerLost

T = TypeVar("T")


class _Binding:
    version = "v0.0.42"

    def ping(self) -> Operation[Ping]:
        return _operation(get_ping.get_request(), get_ping.parse, convert.ping)

    def partitions(self) -> Operation[list[PartitionInfo]]:
        return _operation(
            get_partitions.get_request(),
            get_partitions.parse,
            lambda answer: [convert.partition(row) for row in convert.items(answer.partitions)],
        )

    def nodes(self) -> Operation[list[NodeInfo]]:
        return _operation(
            get_nodes.get_request(),
            get_nodes.parse,
            lambda answer: [convert.node(row) for row in convert.items(answer.nodes)],
        )

    def submit(self, spec: JobSpec, script: str, *, name_owner: bool) -> Operation[JobRef | None]:
        body = JobSubmitReq(job=_description(spec, script, name_owner))
        return _operation(
            post_job_submit.get_request(body=body), post_job_submit.parse, _submitted, repeatable=False
        )

    def job(self, job_id: int) -> Operation[list[JobInfo]]:
        return _operation(
            get_job.get_request(str(job_id)), get_job.parse, lambda answer: convert.rows(answer, convert.job)
        )

    def states(self, job_ids: Collection[int] | None) -> Operation[dict[int, JobState]]:
        wanted = UNSET if job_ids is None else [str(job_id) for job_id in job_ids]
        request = get_jobs_state.get_request(job_id=wanted)
        return Operation(
            request.method, request.path, lambda r: fast.read_states(r.content), params=request.params
        )

    def kill(
        self, job_id: int, *, signal: str | None = None, flags: str | None = None
    ) -> Operation[list[KillRow]]:
        request = delete_job.get_request(
            str(job_id),
            signal=UNSET if signal is None else signal,
            flags=UNSET if flags is None else flags,
        )
        return _operation(request, delete_job.parse, convert.kill_rows, repeatable=signal is None)

    def accounting(self, job_id: int) -> Operation[list[AccountingRecord]]:
        return _operation(
            get_accounting_job.get_request(str(job_id)),
            get_accounting_job.parse,
            lambda answer: convert.rows(answer, convert.accounting),
        )

    def accounting_by_name(self, name: str, user: str, since: int) -> Operation[list[FoundJob]]:
        request = get_accounting_jobs.get_request(
            job_name=[name], users=[user], start_time=str(since), skip_steps="true"
        )
        return _operation(
            request, get_accounting_jobs.parse, lambda answer: convert.rows(answer, convert.found)
        )

    def jobs(self) -> Operation[list[FoundJob]]:
        request = get_jobs.get_request()
        return Operation(
            request.method, request.path, lambda r: fast.read_jobs(r.content), params=request.params
        )


BINDING = _Binding()


def _operation(
    request: Request,
    parse: Callable[[requests.Response], Any],
    read: Callable[[Any], T],
    *,
    repeatable: bool = True,
) -> Operation[T]:
    def answer(response: requests.Response) -> T:
        try:
            parsed = parse(response)
        except UnexpectedResponse as error:
            words = error.reason
        else:
            return read(parsed)
        raise AnswerLost(f"slurmrestd's answer cannot be read: {words}")

    return Operation(
        request.method,
        request.path,
        answer,
        params=request.params,
        body=request.json,
        repeatable=repeatable,
    )


def _submitted(answer: Any) -> JobRef | None:
    job_id = convert.number(answer.job_id)
    message = convert.text(answer.job_submit_user_msg).strip()
    return JobRef(job_id, message=message or None) if job_id and job_id > 0 else None


def _description(spec: JobSpec, script: str, name_owner: bool) -> JobDescMsg:
    """One task on one node. What is not set is not sent, so that the site's defaults hold."""
    job = JobDescMsg(
        name=spec.name,
        script=script,
        environment=environment_list(spec.environment),
        current_working_directory=spec.working_directory,
        standard_input="/dev/null",
        standard_output="/dev/null",
        standard_error="/dev/null",
        tasks=1,
        minimum_nodes=1,
        maximum_nodes=1,
        cpus_per_task=spec.cpus,
        memory_per_node=_set(spec.memory_mib),
        requeue=spec.requeue,
    )
    optional = {
        "comment": spec.comment,
        "account": spec.account,
        "partition": spec.partition,
        "qos": spec.qos,
        "reservation": spec.reservation,
        "constraints": spec.constraints,
        "dependency": spec.dependency,
        "tres_per_node": spec.tres_per_node,
    }
    for name, value in optional.items():
        if value:
            setattr(job, name, value)
    if spec.time_limit_minutes is not None:
        job.time_limit = _set(spec.time_limit_minutes)
    if name_owner:
        # Both or neither: with a privileged token the group would stay the token owner's.
        if spec.uid is not None:
            job.user_id = spec.uid
        if spec.gid is not None:
            job.group_id = spec.gid
    return job


def _set(value: int) -> UintNoVal:
    return UintNoVal(set_=True, infinite=False, number=value)
