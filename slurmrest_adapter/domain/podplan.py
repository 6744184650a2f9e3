"""What the pod runner does on the node; the runner reads it as JSON.

The plan is secret as a whole: environment values may be secrets that were resolved before they
reached us. So it has no useful `repr`, never enters a log, the job script or the job's fields,
and travels apart from the job (CONTRACT.md, "Files").

The schema is versioned: a runner lives as long as its job, so the sidecar must understand the
previous version's status when it is upgraded under a running pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

SCHEMA = 1


@dataclass(frozen=True, slots=True, repr=False)
class FilePlan:
    """One file of a volume.

    Attributes:
        path: below the volume's directory, relative, without ``..``.
        mode: permission bits, 0 to 0o777.
        data: the content in base64, whatever bytes it is.
    """

    path: str
    mode: int
    data: str

    def __repr__(self) -> str:
        return f"FilePlan(path={self.path!r})"


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """One volume of the pod that some container mounts.

    Attributes:
        name: the volume's name, a DNS label.
        files: the files it holds; None is an empty directory that its containers may write to.
        host_path: a file or directory of the node itself, absolute; None for all others.
        host_type: what must be there, by the kubelet's words (``Directory``, ``FileOrCreate``…);
            "" is whatever there is.
        host_within: the directories of the node that it must lie in once every link is followed; None
            is anywhere.
        medium: of an empty directory: "" is the node's disk, "Memory" is memory.
        size_bytes: of an empty directory; None is without a limit of its own.
    """

    name: str
    files: tuple[FilePlan, ...] | None = None
    medium: str = ""
    size_bytes: int | None = None
    host_path: str | None = None
    host_type: str = ""
    host_within: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class DnsPlan:
    """What is in the pod's ``resolv.conf``.

    Attributes:
        node: what the node's own has comes first.
        nameservers, searches: addresses and domains.
        options: as they are written there, ``ndots:5``.
    """

    node: bool
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MountPlan:
    """One volume in one container.

    Attributes:
        volume: the volume's name.
        path: where the container sees it; absolute and normal.
        read_only: the container cannot change it.
        sub_path: the part of the volume that is mounted; "" is all of it.
    """

    volume: str
    path: str
    read_only: bool = False
    sub_path: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class ContainerPlan:
    """One container, everything resolved and expanded.

    Attributes:
        name: the container's name.
        init: runs to its end before the next one starts; as a sidecar it only starts before it.
        image: ``docker://host/name:tag``, ``oras://…`` or an absolute path of a SIF or directory.
        command, args: None means "not given": the image's ENTRYPOINT and CMD then count.
        env: pairs in the pod's order; the last one of a name wins.
        working_dir: None means the image's own.
        gpus: positions in the list of GPUs that Slurm allots to the job, from 0.
        pull_policy: Always, IfNotPresent or Never.
        mounts: what of the pod's volumes it sees, parents before what lies below them.
        read_only_root: it cannot write to its root file system.
        restart_policy: Always, OnFailure or Never, its own or the pod's.
        sidecar: an init container that runs on beside the app containers and ends after them.
        message_path: the file with its last words, absolute.
        message_policy: File, or FallbackToLogsOnError (the end of the log where the file is empty).
    """

    name: str
    image: str
    init: bool = False
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[tuple[str, str], ...] = ()
    working_dir: str | None = None
    gpus: tuple[int, ...] = ()
    pull_policy: str = "IfNotPresent"
    mounts: tuple[MountPlan, ...] = ()
    read_only_root: bool = False
    restart_policy: str = "Never"
    sidecar: bool = False
    message_path: str = "/dev/termination-log"
    message_policy: str = "File"

    def __repr__(self) -> str:
        return f"ContainerPlan(name={self.name!r}, image={self.image!r})"


@dataclass(frozen=True, slots=True, repr=False)
class PodPlan:
    """One pod's work on the node.

    Attributes:
        uid, namespace, name: the pod.
        cluster: the site's name in identities; part of what the runner claims.
        containers: init containers first, each group in the spec's order.
        grace_seconds: between TERM and KILL.
        deadline_seconds: activeDeadlineSeconds, counted from the start of the job; None is none.
        hostname: the pod's hostname.
        runtime: the runtime plugin's own section, for instance
            ``{"name": "apptainer", "insecure_registries": [...], "cache": null}``.
        volumes: those that a container mounts.
        once: the job is never started again, so the runner removes the plan, and the secrets in it,
            when the pod has ended.
        host_aliases: lines for ``/etc/hosts``: an address and its names.
        dns: its resolver; None is the node's.
        backoff_base_seconds: the first wait between two starts of a container that keeps ending;
            each further one is twice as long, up to thirty times the base.
        max_idle_seconds: ends a pod with GPUs that has only waited for so long; None is no limit.
        image_retries: try again to get an image, where the container's restart policy lets it.
        log_max_bytes: of one file of a container's log, before another is begun.
        log_max_files: so many are kept, the newest, of one run of a container.
    """

    uid: str
    namespace: str
    name: str
    cluster: str
    containers: tuple[ContainerPlan, ...]
    grace_seconds: int = 30
    deadline_seconds: int | None = None
    hostname: str = ""
    runtime: Mapping[str, object] = field(default_factory=dict)
    schema: int = SCHEMA
    volumes: tuple[VolumePlan, ...] = ()
    once: bool = False
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    dns: DnsPlan | None = None
    backoff_base_seconds: float = 10.0
    max_idle_seconds: int | None = None
    image_retries: bool = False
    log_max_bytes: int = 10 * 1024 * 1024
    log_max_files: int = 5

    def __repr__(self) -> str:
        return f"PodPlan(uid={self.uid!r}, {len(self.containers)} containers)"

    def to_json(self) -> str:
        """Stable JSON as the runner reads it."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
