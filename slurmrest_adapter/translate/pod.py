"""A pod becomes a JobSpec and a PodPlan. Pure: what it is given decides what comes out, byte for byte."""

from __future__ import annotations

import math
import posixpath
from dataclasses import dataclass

from slurmrest_adapter.domain import expand, images, spank
from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.identity import PodIdentity, sign
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.domain.pod import ContainerView, PodView, is_label, mapping, optional
from slurmrest_adapter.domain.podplan import ContainerPlan, MountPlan, PodPlan
from slurmrest_adapter.domain.volumes import NONE, Objects
from slurmrest_adapter.translate import fields, network, resources, volumes
from slurmrest_adapter.translate.site import Site

# Where the runner finds its directory on the node. Beside the pod's UID for the SPANK plugin the value
# is the only thing in the job's environment that differs from pod to pod; other users cannot see it.
DIRECTORY_VARIABLE = "SRA_POD_DIR"
# Nothing is inherited by a job that comes by REST, so the runner's own needs are spelled out.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

# The pod's own wish, by which it overrules the site's defaults.requeue.
REQUEUE_ANNOTATION = "slurm-job.vk.io/requeue"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who the job belongs to on the Slurm side; translation's view of `identity.base.Owner`."""

    user: str
    account: str | None = None
    qos: str | None = None
    partition: str | None = None
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class Translated:
    """What a pod became.

    Attributes:
        spec: for Slurm.
        plan: for the runner; secret as a whole.
        notes: what was ignored and is worth saying to the pod's author.
    """

    spec: JobSpec
    plan: PodPlan
    notes: tuple[str, ...]


def translate(
    pod: PodView, owner: Ownership, site: Site, key: bytes, directory: str, objects: Objects = NONE
) -> Translated:
    """Make the job and the plan of a pod whose references are resolved.

    Args:
        pod: a checked view (`domain.pod.view`).
        owner: who runs it.
        site: the site's defaults and maps.
        key: signs the identity in the job's comment.
        directory: the pod's directory as the nodes see it.
        objects: what the pod's volumes are made of.

    Raises:
        Invalid, Unsupported: by field; the first in the pod's order.
    """
    checked = fields.check(pod.raw, site.run_as_user, site.runtime.get("mode") == "plain")
    if checked.refused:
        raise checked.refused[0]
    needs = resources.of_pod(pod, site)
    built = volumes.of_pod(pod, objects, site)
    requeue = _requeue(pod, site)
    identity = PodIdentity(pod.uid, pod.namespace, pod.name, site.cluster)
    plan = PodPlan(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        cluster=site.cluster,
        containers=tuple(
            _container(c, needs.slices[c.name], built.mounts[c.name], site, pod.restart_policy)
            for c in pod.containers()
        ),
        grace_seconds=pod.grace_seconds,
        deadline_seconds=pod.deadline_seconds,
        hostname=_hostname(pod),
        runtime=dict(site.runtime),
        volumes=built.volumes,
        once=not requeue,
        host_aliases=network.aliases_of(pod),
        dns=network.dns_of(pod),
        backoff_base_seconds=site.backoff_base_seconds,
        log_max_bytes=site.log_max_bytes,
        log_max_files=site.log_max_files,
        max_idle_seconds=site.max_idle_seconds if needs.gpus else None,
        image_retries=site.image_retries,
    )
    spec = JobSpec(
        name=identity.job_name,
        comment=sign(identity, key),
        user=owner.user,
        account=owner.account,
        partition=owner.partition or site.partition,
        qos=owner.qos,
        cpus=needs.cpus,
        memory_mib=needs.memory_mib,
        gpus=needs.gpus,
        time_limit_minutes=time_limit_minutes(pod.deadline_seconds, pod.grace_seconds, site),
        grace_seconds=pod.grace_seconds,
        requeue=requeue,
        uid=owner.uid,
        gid=owner.gid,
        environment={
            "PATH": PATH,
            "HOME": "/",
            "USER": owner.user,
            "LANG": "C.UTF-8",
            DIRECTORY_VARIABLE: directory,
            **(spank.options(pod.uid) if site.spank else {}),
        },
    )
    return Translated(spec, plan, (*checked.notes, *built.notes))


def time_limit_minutes(deadline: int | None, grace: int, site: Site) -> int | None:
    """Slurm's limit in minutes.

    The pod's deadline counts from the job's start and is kept by the runner; Slurm's limit stands
    above it: rounded up to minutes, plus the grace period and one minute, so that the orderly end
    comes first. Without a deadline it is the site's default, None leaves it to the partition.
    """
    if deadline is not None:
        return math.ceil(deadline / 60) + math.ceil(grace / 60) + 1
    if site.time_limit_seconds is None:
        return None
    return max(1, math.ceil(site.time_limit_seconds / 60))


def _requeue(pod: PodView, site: Site) -> bool:
    given = pod.annotations.get(REQUEUE_ANNOTATION)
    if given not in (None, "true", "false"):
        where = f"metadata.annotations[{REQUEUE_ANNOTATION}]"
        raise Invalid(where, f"{given!r} is neither 'true' nor 'false'")
    return site.requeue if given is None else given == "true"


def _hostname(pod: PodView) -> str:
    """The pod's host name: its own field, a DNS label, else its name as far as a host name goes."""
    given = optional(pod.spec.get("hostname"), "spec.hostname")
    if given and not is_label(given):
        raise Invalid("spec.hostname", f"{given!r} is no DNS label (a-z, 0-9 and '-')")
    return given or pod.name[:63].rstrip(".-")


def _container(
    container: ContainerView, gpus: tuple[int, ...], mounts: tuple[MountPlan, ...], site: Site, policy: str
) -> ContainerPlan:
    env = expand.env(container.env)
    known = dict(env)
    command, args = container.words("command"), container.words("args")
    reference = _mapped(container.image, site)
    parsed = images.parse(reference, f"{container.path}.image")
    working_dir = optional(container.raw.get("workingDir"), f"{container.path}.workingDir") or None
    if working_dir is not None and not working_dir.startswith("/"):
        raise Invalid(f"{container.path}.workingDir", f"{working_dir!r} is no absolute path")
    return ContainerPlan(
        name=container.name,
        init=container.init,
        image=parsed.runtime_ref(),
        command=None if command is None else tuple(expand.text(word, known) for word in command),
        args=None if args is None else tuple(expand.text(word, known) for word in args),
        env=env,
        working_dir=working_dir,
        gpus=gpus,
        pull_policy=_pull_policy(container, parsed),
        mounts=mounts,
        read_only_root=_read_only(container),
        restart_policy=_restart_policy(container, policy),
        sidecar=container.sidecar,
        message_path=_message_path(container),
        message_policy=_message_policy(container),
    )


def _read_only(container: ContainerView) -> bool:
    where = f"{container.path}.securityContext"
    return mapping(container.raw.get("securityContext"), where).get("readOnlyRootFilesystem") is True


def _restart_policy(container: ContainerView, pods: str) -> str:
    """The container's own policy, else the pod's, by which an init container is done once it succeeded."""
    own = optional(container.raw.get("restartPolicy"), f"{container.path}.restartPolicy")
    return own or ("OnFailure" if container.init and pods == "Always" else pods)


def _message_path(container: ContainerView) -> str:
    where = f"{container.path}.terminationMessagePath"
    given = optional(container.raw.get("terminationMessagePath"), where) or "/dev/termination-log"
    path = posixpath.normpath("/" + given.lstrip("/"))
    if not given.startswith("/") or path == "/" or ".." in given.split("/"):
        raise Invalid(where, f"{given!r} is no absolute path of a file")
    return path


def _message_policy(container: ContainerView) -> str:
    where = f"{container.path}.terminationMessagePolicy"
    given = optional(container.raw.get("terminationMessagePolicy"), where) or "File"
    if given not in ("File", "FallbackToLogsOnError"):
        raise Invalid(where, f"{given!r} is not File or FallbackToLogsOnError")
    return given


def _mapped(reference: str, site: Site) -> str:
    """The image after the site's map: the longest prefix that matches is replaced."""
    for prefix in sorted(site.image_map, key=len, reverse=True):
        if reference.startswith(prefix):
            return site.image_map[prefix] + reference[len(prefix) :]
    return reference


def _pull_policy(container: ContainerView, parsed: images.ImageRef) -> str:
    given = optional(container.raw.get("imagePullPolicy"), f"{container.path}.imagePullPolicy")
    policy = given or images.default_pull_policy(parsed)
    if policy not in ("Always", "IfNotPresent", "Never"):
        raise Invalid(f"{container.path}.imagePullPolicy", f"{policy!r} is no pull policy")
    return policy
