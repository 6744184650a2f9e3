"""What translation needs to know of the site, apart from the configuration's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Site:
    """The site's answers where a pod does not say.

    Attributes:
        cluster: the site's name in identities.
        partition: default partition; None leaves it to Slurm.
        cpus: CPUs of a container that asks for none.
        memory: memory of a container that asks for none, a Kubernetes quantity.
        time_limit_seconds: for pods without activeDeadlineSeconds; None is the partition's own.
        requeue: may Slurm start a job again by itself, where the pod does not say.
        gpu_resources: Kubernetes resource → GRES ``name`` or ``name:type``.
        gpu_types: ``nvidia.com/gpu.product`` → GRES type.
        run_as_user: ignore | refuse.
        image_map: prefix of an image reference → what stands in its place.
        host_paths: directories of the nodes that pods may mount, with all that is below them.
        claims: ``namespace/name`` of a PersistentVolumeClaim → a directory on the nodes.
        runtime: the runtime's own section of the plan.
        backoff_base_seconds, log_max_bytes, log_max_files: see `PodPlan`.
        max_idle_seconds: see `PodPlan`.
        spank: the nodes have our SPANK plugin, and jobs carry its options.
        image_retries: see `PodPlan`; False where somebody waits at a terminal for the pod's end.
    """

    cluster: str
    partition: str | None = None
    cpus: int = 1
    memory: str = "1Gi"
    time_limit_seconds: int | None = 3600
    requeue: bool = False
    gpu_resources: Mapping[str, str] = field(
        default_factory=lambda: {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
    )
    gpu_types: Mapping[str, str] = field(default_factory=dict)
    run_as_user: str = "ignore"
    image_map: Mapping[str, str] = field(default_factory=dict)
    host_paths: tuple[str, ...] = ()
    claims: Mapping[str, str] = field(default_factory=dict)
    runtime: Mapping[str, object] = field(default_factory=dict)
    backoff_base_seconds: float = 10.0
    log_max_bytes: int = 10 * 1024 * 1024
    log_max_files: int = 5
    max_idle_seconds: int | None = 1800
    spank: bool = False
    image_retries: bool = True
