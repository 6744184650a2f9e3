"""Generated models → ours, as far as all API versions agree.

The functions take `Any`: each version has its own classes with the same attribute names, and every
attribute may be missing (UNSET), null, or of another type than declared. What cannot be read is
empty or None here, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from slurmrest_adapter.domain.jobs import (
    AccountingRecord,
    ExitCode,
    FoundJob,
    JobInfo,
    JobRef,
    NodeInfo,
    PartitionInfo,
    Ping,
)
from slurmrest_adapter.slurm.bindings.base import KillRow

_MIB = 1024 * 1024


def text(value: Any) -> str:
    """A string, or nothing."""
    return value if isinstance(value, str) else ""


def words(value: Any) -> tuple[str, ...]:
    """A list of strings; a lone string is a list of one."""
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(item for item in items(value) if isinstance(item, str))


def items(value: Any) -> Iterable[Any]:
    """A list, or none."""
    return value if isinstance(value, list | tuple) else ()


def number(value: Any) -> int | None:
    """A number, plain or as Slurm's set/infinite/number; None for unset and infinite ones."""
    if hasattr(value, "number"):
        if value.set_ is not True or value.infinite is True:
            return None
        value = value.number
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return int(value)


def moment(value: Any) -> int | None:
    """POSIX seconds; Slurm writes 0 for none."""
    return number(value) or None


def at(value: Any, *path: str) -> Any:
    """A nested attribute, None where any part of the way is missing."""
    for name in path:
        value = getattr(value, name, None)
    return value


def reason(value: Any) -> str:
    """Slurm writes the word None for no reason."""
    return "" if value == "None" else text(value)


def exit_code(value: Any) -> ExitCode:
    """Return code, signal and Slurm's status words."""
    return ExitCode(
        return_code=number(at(value, "return_code")),
        signal=number(at(value, "signal", "id")) or None,
        status=words(at(value, "status")),
    )


def ping(answer: Any) -> Ping:
    """`responding` is there in the newer versions, `pinged` in all but v0.0.45."""
    controllers = {}
    for row in items(answer.pings):
        responding = at(row, "responding")
        up = responding if isinstance(responding, bool) else text(at(row, "pinged")).upper() == "UP"
        controllers[text(row.hostname)] = up
    return Ping(release=text(at(answer.meta, "slurm", "release")), controllers=controllers)


def partition(row: Any) -> PartitionInfo:
    """One partition."""
    return PartitionInfo(
        name=text(row.name),
        states=words(at(row.partition, "state")),
        nodes=text(at(row.nodes, "configured")),
        default_time_minutes=number(at(row.defaults, "time")),
        max_time_minutes=number(at(row.maximums, "time")),
        total_cpus=number(at(row.cpus, "total")) or 0,
        tres=text(at(row.tres, "configured")),
    )


def node(row: Any) -> NodeInfo:
    """One node."""
    return NodeInfo(
        name=text(row.name),
        states=words(row.state),
        cpus=number(row.cpus) or 0,
        memory_mib=number(row.real_memory) or 0,
        gres=text(row.gres),
        gres_used=text(row.gres_used),
        tres=text(row.tres),
        tres_used=text(row.tres_used),
        features=words(row.features),
        partitions=words(row.partitions),
        reason=text(row.reason),
    )


def job(row: Any) -> JobInfo:
    """A job of slurmctld."""
    return JobInfo(
        job_id=number(row.job_id) or 0,
        states=words(row.job_state),
        name=text(row.name),
        user=text(row.user_name),
        account=text(row.account),
        partition=text(row.partition),
        qos=text(row.qos),
        reason=reason(row.state_reason),
        description=text(row.state_description),
        comment=text(row.comment),
        nodes=text(row.nodes),
        gres=words(row.gres_detail),
        tres_requested=text(row.tres_req_str),
        tres_per_node=text(row.tres_per_node),
        tres_allocated=text(row.tres_alloc_str),
        exit_code=exit_code(row.exit_code),
        derived_exit_code=exit_code(row.derived_exit_code),
        restart_count=number(row.restart_cnt) or 0,
        cpus=number(row.cpus),
        memory_mib=_memory(row),
        time_limit_minutes=number(row.time_limit),
        submit_time=moment(row.submit_time),
        start_time=moment(row.start_time),
        end_time=moment(row.end_time),
        cluster=text(row.cluster),
        uid=number(row.user_id),
        gid=number(row.group_id),
        dependency=text(row.dependency),
    )


def _memory(row: Any) -> int | None:
    """MiB of a job on one node, by node or by CPU."""
    whole = number(row.memory_per_node)
    if whole is not None:
        return whole
    each, cpus = number(row.memory_per_cpu), number(row.cpus)
    return each * cpus if each is not None and cpus else None


def submitted(answer: Any) -> JobRef | None:
    """The job id and the site's message to the user; None without a job id."""
    job_id = number(answer.job_id)
    message = text(answer.job_submit_user_msg).strip()
    return JobRef(job_id, message=message or None) if job_id and job_id > 0 else None


def kill_rows(answer: Any) -> list[KillRow]:
    """What stands in ``status[].error``, the only place of a denial."""
    rows = []
    for row in items(answer.status):
        code = number(at(row, "error", "code")) or 0
        said = text(at(row, "error", "message")) or text(at(row, "error", "string"))
        if code:
            # job_id is unset for a job that is not known; step_id is what was asked for.
            named = text(at(row, "step_id")).partition(".")[0]
            asked = int(named) if named.isdecimal() else number(at(row, "job_id"))
            rows.append(KillRow(code, said, asked))
    return rows


def update_rows(answer: Any) -> list[KillRow]:
    """The parts of an array that did not change, each with its error."""
    rows = []
    for row in items(answer.results):
        code = number(row.error_code) or 0
        if code:
            rows.append(KillRow(code, text(row.error) or text(row.why), number(row.job_id)))
    return rows


def accounting(row: Any) -> AccountingRecord:
    """A job of slurmdbd. CPU time is summed over the steps: the job's own sums stay 0."""
    steps = list(items(row.steps))
    return AccountingRecord(
        job_id=number(row.job_id) or 0,
        states=words(at(row.state, "current")),
        name=text(row.name),
        user=text(row.user),
        account=text(row.account),
        partition=text(row.partition),
        comment=text(at(row.comment, "job")),
        nodes="" if row.nodes == "None assigned" else text(row.nodes),
        exit_code=exit_code(row.exit_code),
        derived_exit_code=exit_code(row.derived_exit_code),
        reason=reason(at(row.state, "reason")),
        kill_request_user=text(row.kill_request_user),
        failed_node=text(row.failed_node),
        restart_count=number(at(row, "restart_cnt")) or 0,
        submit_time=moment(at(row.time, "submission")),
        eligible_time=moment(at(row.time, "eligible")),
        start_time=moment(at(row.time, "start")),
        end_time=moment(at(row.time, "end")),
        elapsed_seconds=number(at(row.time, "elapsed")) or 0,
        cpu_user_seconds=sum(_seconds(at(step, "time", "user")) for step in steps),
        cpu_system_seconds=sum(_seconds(at(step, "time", "system")) for step in steps),
        max_rss_mib=_max_rss(steps),
        energy_joules=_energy(row, steps),
        tres_allocated=dict(_tres(at(row.tres, "allocated"))),
        tres_requested=dict(_tres(at(row.tres, "requested"))),
    )


def found(row: Any) -> FoundJob:
    """A job of slurmdbd, the few fields of a search."""
    return FoundJob(
        job_id=number(row.job_id) or 0,
        states=words(at(row.state, "current")),
        name=text(row.name),
        user=text(row.user),
        comment=text(at(row.comment, "job")),
        submit_time=moment(at(row.time, "submission")),
    )


def rows(answer: Any, convert: Callable[[Any], Any]) -> list[Any]:
    """Every row of ``jobs``."""
    return [convert(row) for row in items(answer.jobs)]


def _tres(counted: Any) -> Iterator[tuple[str, int]]:
    """``gres/gpu:a100`` → count. Negative counts are Slurm's "no value"."""
    for entry in items(counted):
        name, count = text(entry.name), number(entry.count)
        if count is not None and count >= 0:
            yield (f"{text(entry.type_)}/{name}" if name else text(entry.type_)), count


def _seconds(spent: Any) -> float:
    return (number(at(spent, "seconds")) or 0) + (number(at(spent, "microseconds")) or 0) / 1e6


def _max_rss(steps: list[Any]) -> int | None:
    """The largest task's peak; steps measure memory in bytes. None when nothing was measured."""
    peaks = [
        count
        for step in steps
        for kind, count in _tres(at(step, "tres", "requested", "max_"))
        if kind == "mem" and count > 0
    ]
    return -(-max(peaks) // _MIB) if peaks else None


def _energy(row: Any, steps: list[Any]) -> int | None:
    """Joules of the job, else of its largest step; 0 means that nobody measured."""
    whole = dict(_tres(at(row.tres, "allocated"))).get("energy", 0)
    measured = [number(at(step, "statistics", "energy", "consumed")) or 0 for step in steps]
    return whole or max(measured, default=0) or None
