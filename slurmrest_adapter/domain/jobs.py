"""What Slurm says of a job, apart from any API version.

Bindings turn each version's answers into these; nothing outside the bindings sees a wire model.
Times are POSIX seconds, 0 or None where Slurm has none; memory is MiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class JobRef:
    """The answer to a submit."""

    job_id: int
    warnings: tuple[str, ...] = ()
    message: str | None = None  # job_submit_user_msg: the site's submit plugin speaks to the user


@dataclass(frozen=True, slots=True)
class ExitCode:
    """How a job or step ended: the return code, or the signal that killed it."""

    return_code: int | None = None
    signal: int | None = None
    status: tuple[str, ...] = ()

    def words(self) -> str:
        """As people read it: ``exit code 3``, ``signal 9``."""
        if self.signal:
            return f"signal {self.signal}"
        if self.return_code is None:
            return "no exit code"
        return f"exit code {self.return_code}"


@dataclass(frozen=True, slots=True)
class JobState:
    """One row of the bulk poll: base word and flags, as Slurm lists them."""

    job_id: int
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobInfo:
    """A job as slurmctld knows it now."""

    job_id: int
    states: tuple[str, ...]
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    reason: str = ""
    description: str = ""
    comment: str = ""
    nodes: str = ""
    gres: tuple[str, ...] = ()  # gres_detail, a string for each node: gpu:a100:2(IDX:0-1)
    tres_requested: str = ""
    tres_per_node: str = ""  # as the job asks for it, accounted or not: gres/gpu:a100:2
    tres_allocated: str = ""
    exit_code: ExitCode = field(default_factory=ExitCode)
    derived_exit_code: ExitCode = field(default_factory=ExitCode)
    restart_count: int = 0
    cpus: int | None = None
    memory_mib: int | None = None
    time_limit_minutes: int | None = None
    submit_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None  # expected while it runs
    cluster: str = ""
    uid: int | None = None
    gid: int | None = None
    dependency: str = ""

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> JobInfo:
        """The inverse of `dataclasses.asdict`, after a way through JSON."""
        values = dict(raw)
        values["states"] = tuple(values["states"])
        values["gres"] = tuple(values.get("gres", ()))
        for key in ("exit_code", "derived_exit_code"):
            code = dict(values.get(key) or {})
            values[key] = ExitCode(**{**code, "status": tuple(code.get("status", ()))})
        return cls(**values)


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job found by its name, in slurmctld or slurmdbd.

    slurmdbd knows a job's comment only after the job's end, so an empty one proves nothing.
    """

    job_id: int
    states: tuple[str, ...]
    name: str
    user: str = ""
    comment: str = ""
    submit_time: int | None = None


@dataclass(frozen=True, slots=True)
class AccountingRecord:
    """A job as slurmdbd keeps it; complete once `end_time` is set."""

    job_id: int
    states: tuple[str, ...]
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    comment: str = ""
    nodes: str = ""
    exit_code: ExitCode = field(default_factory=ExitCode)
    derived_exit_code: ExitCode = field(default_factory=ExitCode)
    reason: str = ""
    kill_request_user: str = ""
    failed_node: str = ""
    restart_count: int = 0
    submit_time: int | None = None
    eligible_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    elapsed_seconds: int = 0
    cpu_user_seconds: float = 0.0  # over all steps
    cpu_system_seconds: float = 0.0
    max_rss_mib: int | None = None  # the largest step task
    energy_joules: int | None = None
    tres_allocated: Mapping[str, int] = field(
        default_factory=dict
    )  # "cpu", "mem" (MiB), "gres/gpu", "gres/gpu:a100"
    tres_requested: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ping:
    """Who answers: slurmrestd's release and the controllers it sees."""

    release: str
    controllers: Mapping[str, bool]  # host → responding

    @property
    def up(self) -> bool:
        """True when at least one slurmctld answers."""
        return any(self.controllers.values())


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node; memory in MiB."""

    name: str
    states: tuple[str, ...]
    cpus: int = 0
    memory_mib: int = 0
    gres: str = ""
    gres_used: str = ""
    tres: str = ""
    tres_used: str = ""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition; times in minutes, None is unlimited or unset."""

    name: str
    states: tuple[str, ...]
    nodes: str = ""
    default_time_minutes: int | None = None
    max_time_minutes: int | None = None
    total_cpus: int = 0
    tres: str = ""
