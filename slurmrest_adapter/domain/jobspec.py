"""What Slurm is asked to schedule, apart from any API version.

A `JobSpec` is what translation makes of a pod and what a binding renders into one API version's
job description. It is frozen, and holds nothing secret: everything in it may be seen by other
users of the cluster or end in slurmdbd. What is secret is in the PodPlan, which a site may choose to
send in the environment; only what is submitted has it then, never what is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """GPUs of one kind for the whole job: ``gres/<name>[:<type>]:<count>``."""

    name: str
    type: str | None
    count: int

    @property
    def tres(self) -> str:
        """As Slurm's ``tres_per_node`` takes it: ``gres/gpu:a100:2``."""
        kind = f"{self.name}:{self.type}" if self.type else self.name
        return f"gres/{kind}:{self.count}"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job on one node.

    Attributes:
        name: job name, the pod's name and 12 digits of its UID (see `domain.identity`).
        comment: signed identity, then the user's own comment.
        user: the Slurm user the job belongs to; uid and gid are known when the site says so.
        account, partition, qos, reservation: None leaves the choice to Slurm.
        cpus: whole CPUs, at least 1.
        memory_mib: MiB for the whole job, at least 1 (0 would mean the whole node).
        gpus: GPU GRES; empty when the pod asks for none.
        time_limit_minutes: None leaves it to the partition.
        grace_seconds: the pod's own time between TERM and KILL, counted by us.
        dependency: complete dependency string, ours first.
        requeue: may Slurm start the job again by itself.
        constraints: node features, Slurm's expression.
        environment: nothing of the pod but its UID: what the runner needs to start, and options of SPANK
            plugins (`domain.spank`), which a binding sends to prolog and epilog too.
        working_directory: must exist on the node and says nothing about the pod.
    """

    name: str
    comment: str
    user: str
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    reservation: str | None = None
    cpus: int = 1
    memory_mib: int = 1
    gpus: tuple[GpuRequest, ...] = ()
    time_limit_minutes: int | None = None
    grace_seconds: int = 30
    dependency: str = "singleton"
    requeue: bool = False
    constraints: str | None = None
    uid: int | None = None
    gid: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    working_directory: str = "/"

    @property
    def tres_per_node(self) -> str | None:
        """Slurm's TRES string for the GPUs, None without any."""
        return ",".join(gpu.tres for gpu in self.gpus) or None

    def to_json(self) -> str:
        """Stable JSON, the store's and the golden tests' form."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """The inverse of `to_json`."""
        raw = json.loads(text)
        raw["gpus"] = tuple(GpuRequest(**gpu) for gpu in raw["gpus"])
        return cls(**raw)
