"""What all API versions have in common.

A version's own module gives the generated packages and overrides what differs. They have the same
names in every version; nothing in here imports one, so one version loads no other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

import requests

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
from slurmrest_adapter.slurm.base import JobChange
from slurmrest_adapter.slurm.bindings import convert, fast
from slurmrest_adapter.slurm.bindings.base import KillRow, Operation
from slurmrest_adapter.slurm.bindings.environment import environment_list, spank_list
from slurmrest_adapter.slurm.session import AnswerLost

T = TypeVar("T")


class RestBinding:
    """One API version through its generated package.

    Args:
        version: as in the paths: ``v0.0.42``.
        slurm, slurmdb: the generated packages of operations, a module each.
        models, errors: the generated classes; `Any`, since to the type checker each version's are others.
    """

    def __init__(
        self, version: str, slurm: ModuleType, slurmdb: ModuleType, models: Any, errors: Any
    ) -> None:
        self.version = version
        self._slurm = slurm
        self._slurmdb = slurmdb
        self._models = models
        self._unexpected: type[Exception] = errors.UnexpectedResponse

    def ping(self) -> Operation[Ping]:
        module = _module(self._slurm, "get_ping")
        return self._operation(module, module.get_request(), convert.ping)

    def partitions(self) -> Operation[list[PartitionInfo]]:
        module = _module(self._slurm, "get_partitions")
        return self._operation(
            module,
            module.get_request(),
            lambda answer: [convert.partition(row) for row in convert.items(answer.partitions)],
        )

    def nodes(self) -> Operation[list[NodeInfo]]:
        module = _module(self._slurm, "get_nodes")
        return self._operation(
            module,
            module.get_request(),
            lambda answer: [convert.node(row) for row in convert.items(answer.nodes)],
        )

    def submit(self, spec: JobSpec, script: str, *, name_owner: bool) -> Operation[JobRef | None]:
        module = _module(self._slurm, "post_job_submit")
        body = self._models.JobSubmitReq(job=self._description(spec, script, name_owner))
        return self._operation(module, module.get_request(body=body), convert.submitted, repeatable=False)

    def job(self, job_id: int) -> Operation[list[JobInfo]]:
        module = _module(self._slurm, "get_job")
        return self._operation(
            module, module.get_request(str(job_id)), lambda answer: convert.rows(answer, convert.job)
        )

    def jobs(self) -> Operation[list[FoundJob]]:
        request = _module(self._slurm, "get_jobs").get_request()
        return Operation(
            request.method, request.path, lambda r: fast.read_jobs(r.content), params=request.params
        )

    def states(self, job_ids: Collection[int] | None) -> Operation[dict[int, JobState]]:
        wanted = None if job_ids is None else [str(job_id) for job_id in job_ids]
        request = _module(self._slurm, "get_jobs_state").get_request(job_id=wanted)
        return Operation(
            request.method, request.path, lambda r: fast.read_states(r.content), params=request.params
        )

    def update(self, job_id: int, change: JobChange) -> Operation[list[KillRow]]:
        module = _module(self._slurm, "post_job")
        body = self._models.JobDescMsg()
        plain: Mapping[str, Any] = {
            "comment": change.comment,
            "partition": change.partition,
            "qos": change.qos,
            "hold": change.hold,
        }
        numbers = {"time_limit": change.time_limit_minutes, "begin_time": change.begin_time}
        for name, value in plain.items():
            if value is not None:
                setattr(body, name, value)
        for name, number in numbers.items():
            if number is not None:
                setattr(body, name, self._set(number))
        return self._operation(module, module.get_request(str(job_id), body=body), convert.update_rows)

    def kill(
        self, job_id: int, *, signal: str | None = None, flags: str | None = None
    ) -> Operation[list[KillRow]]:
        module = _module(self._slurm, "delete_job")
        request = module.get_request(str(job_id), signal=signal, flags=flags)
        return self._operation(module, request, convert.kill_rows, repeatable=signal is None)

    def kill_many(
        self, job_ids: Collection[int], *, signal: str | None = None, flags: str | None = None
    ) -> Operation[list[KillRow]]:
        module = _module(self._slurm, "delete_jobs")
        body = self._models.KillJobsMsg(jobs=[str(job_id) for job_id in job_ids])
        if signal is not None:
            body.signal = signal
        if flags is not None:
            body.flags = [flags]
        request = module.get_request(body=body)
        return self._operation(module, request, convert.kill_rows, repeatable=signal is None)

    def accounting(self, job_id: int) -> Operation[list[AccountingRecord]]:
        module = _module(self._slurmdb, "get_job")
        return self._operation(
            module, module.get_request(str(job_id)), lambda answer: convert.rows(answer, convert.accounting)
        )

    def accounting_by_name(self, name: str, user: str, since: int) -> Operation[list[FoundJob]]:
        module = _module(self._slurmdb, "get_jobs")
        request = module.get_request(
            job_name=[name], users=[user], start_time=self._moment(since), skip_steps="true"
        )
        return self._operation(module, request, lambda answer: convert.rows(answer, convert.found))

    def _operation(
        self, module: Any, request: Any, read: Callable[[Any], T], *, repeatable: bool = True
    ) -> Operation[T]:
        """A request of this version, and its answer read by `read` from the generated model."""

        def answer(response: requests.Response) -> T:
            try:
                parsed = module.parse(response)
            except self._unexpected as error:
                words = getattr(error, "reason", "")
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

    def _description(self, spec: JobSpec, script: str, name_owner: bool) -> Any:
        """One task on one node. What is not set is not sent, so that the site's defaults hold."""
        job = self._models.JobDescMsg(
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
            memory_per_node=self._set(spec.memory_mib),
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
            "spank_environment": spank_list(spec.environment),
        }
        for name, value in optional.items():
            if value:
                setattr(job, name, value)
        if spec.time_limit_minutes is not None:
            job.time_limit = self._set(spec.time_limit_minutes)
        if name_owner:
            # Both or neither: with a privileged token the group would stay the token owner's.
            if spec.uid is not None:
                job.user_id = spec.uid
            if spec.gid is not None:
                job.group_id = spec.gid
        return job

    def _moment(self, seconds: int) -> str:
        """POSIX seconds as a query parameter."""
        return str(seconds)

    def _set(self, value: int) -> Any:
        return self._models.UintNoVal(set_=True, infinite=False, number=value)


class EarlierBinding(RestBinding):
    """v0.0.40 and v0.0.41.

    Their ``DELETE job/{id}`` says nothing of a denial, not even in ``status[]``. ``DELETE jobs/`` does,
    so a single job goes that way too; it also refuses an unknown signal, where the other way kills
    the job. Plain seconds are no time to them (error 9202).
    """

    def kill(
        self, job_id: int, *, signal: str | None = None, flags: str | None = None
    ) -> Operation[list[KillRow]]:
        return self.kill_many([job_id], signal=signal, flags=flags)

    def _moment(self, seconds: int) -> str:
        # Slurm's parse_time takes no smaller number than this, twelve days after 1970.
        return f"uts{max(seconds, 1_000_000)}"


def _module(package: ModuleType, operation: str) -> Any:
    """A generated package's module of one operation."""
    return import_module(f"{package.__name__}.{operation}")
