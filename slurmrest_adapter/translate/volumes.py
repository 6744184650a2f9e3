"""A pod's volumes and their mounts become the plan's; the objects they are made of came along."""

from __future__ import annotations

import base64
import math
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurmrest_adapter.domain import expand, quantities, subpath
from slurmrest_adapter.domain.errors import Invalid, Unsupported
from slurmrest_adapter.domain.pod import ContainerView, PodView, is_label, items, mapping, optional, text
from slurmrest_adapter.domain.podplan import FilePlan, MountPlan, VolumePlan
from slurmrest_adapter.domain.resolve_objects import Objects as Index
from slurmrest_adapter.domain.volumes import Objects
from slurmrest_adapter.translate.site import Site
from slurmrest_adapter.translate.volume_files import Maker

_FILES = ("configMap", "secret", "projected", "downwardAPI")
_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_NOT_SENT = "no token was sent with the pod, so there is none in the containers"
_SHM = "/dev/shm"  # noqa: S108  the one mount below /dev that pods have
_KERNELS = ("/proc", "/sys", "/dev")
_HOST_TYPES = (
    "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
)  # fmt: skip
_RECURSIVE = ("", "Disabled", "IfPossible", "Enabled")


@dataclass(slots=True)
class Built:
    """What a pod's volumes became.

    Attributes:
        volumes: those that a container mounts, in the pod's order.
        mounts: container → its mounts, parents before what lies below them.
        notes: what was ignored and is worth saying to the pod's author.
    """

    volumes: tuple[VolumePlan, ...] = ()
    mounts: dict[str, tuple[MountPlan, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def of_pod(pod: PodView, objects: Objects, site: Site) -> Built:
    """Plan the volumes of a pod that the field table has let through.

    Raises:
        Invalid: by Kubernetes' own rules; a missing object or key is named.
        Unsupported: a token that nobody sent, a mount where none can be made.
    """
    built = Built()
    volumes = _by_name(pod)
    users: dict[str, list[str]] = {}
    for container in pod.containers():
        for _, mount in _mounts_of(container):
            users.setdefault(str(mount.get("name")), []).append(str(mount.get("mountPath")))
    index = Index(pod.raw, objects.config_maps, objects.secrets)
    plans: dict[str, VolumePlan] = {}
    for name, (where, volume) in volumes.items():
        if name in users:
            own = _is_token(volume, users[name])
            if own and not _was_sent(volume, objects, index):
                built.notes.append(f"{where}.{_source_of(volume, where)}: {_NOT_SENT}")
            else:
                maker = Maker(pod.raw, index, objects.files_of(name), lenient=own)
                plans[name] = _volume(name, volume, where, maker, built.notes, pod.namespace, site)
    built.volumes = tuple(plans.values())
    for container in pod.containers():
        built.mounts[container.name] = _container(container, volumes, plans)
    return built


def _by_name(pod: PodView) -> dict[str, tuple[str, Mapping[str, Any]]]:
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for index, raw in enumerate(items(pod.spec.get("volumes"), "spec.volumes")):
        where = f"spec.volumes[{index}]"
        volume = mapping(raw, where)
        name = text(volume.get("name"), f"{where}.name")
        if not is_label(name):
            raise Invalid(f"{where}.name", f"{name!r} is no DNS label (a-z, 0-9 and '-')")
        if name in found:
            raise Invalid(f"{where}.name", f"{name!r} is used twice")
        found[name] = (where, volume)
    return found


def _source_of(volume: Mapping[str, Any], where: str) -> str:
    """The volume's one source; without any it is an emptyDir, as the API server makes it."""
    sources = [key for key, value in volume.items() if key != "name" and value is not None]
    if len(sources) > 1:
        raise Invalid(where, f"has more than one source: {', '.join(sources)}")
    return sources[0] if sources else "emptyDir"


def _volume(
    name: str,
    volume: Mapping[str, Any],
    where: str,
    maker: Maker,
    notes: list[str],
    namespace: str,
    site: Site,
) -> VolumePlan:
    kind = _source_of(volume, where)
    source, at = mapping(volume.get(kind), f"{where}.{kind}"), f"{where}.{kind}"
    if kind in _FILES:
        made = maker.files(kind, source, at)
        files = tuple(
            FilePlan(path, mode, base64.b64encode(data).decode("ascii"))
            for path, (mode, data) in made.items()
        )
        return VolumePlan(name, files)
    if kind == "hostPath":
        return _host_path(name, source, at, site)
    if kind == "persistentVolumeClaim":
        return _claim(name, source, at, namespace, site)
    if kind != "emptyDir":  # the field table has refused it before
        raise Unsupported(at, "not yet carried")
    size = None
    medium = optional(source.get("medium"), f"{at}.medium")
    if source.get("sizeLimit") is not None:
        limit = quantities.parse_amount(source["sizeLimit"], f"{at}.sizeLimit")
        size = math.ceil(limit) or None  # 0 is none, as for the kubelet
        if size and medium != "Memory":
            notes.append(f"{at}.sizeLimit: the pod is not ended when it fills more of the node's disk")
    return VolumePlan(name, None, medium, size)


def _host_path(name: str, source: Mapping[str, Any], where: str, site: Site) -> VolumePlan:
    path = text(source.get("path"), f"{where}.path")
    if not path.startswith("/") or ".." in path.split("/"):
        raise Invalid(f"{where}.path", f"{path!r} must be absolute and without '..'")
    kind = optional(source.get("type"), f"{where}.type")
    if kind not in _HOST_TYPES:
        raise Invalid(f"{where}.type", f"{kind!r} is none of {', '.join(_HOST_TYPES[1:])}")
    path = "/" + posixpath.normpath(path).lstrip("/")
    if not any(path == base or path.startswith(base.rstrip("/") + "/") for base in site.host_paths):
        allowed = ", ".join(site.host_paths) or "none"
        reason = f"{path!r} is not allowed by the site (policy.host_paths: {allowed})"
        raise Unsupported(f"{where}.path", reason)
    return VolumePlan(name, host_path=path, host_type=kind, host_within=site.host_paths)


def _claim(name: str, source: Mapping[str, Any], where: str, namespace: str, site: Site) -> VolumePlan:
    claim = f"{namespace}/{text(source.get('claimName'), f'{where}.claimName')}"
    path = site.claims.get(claim)
    if path is None:
        raise Unsupported(f"{where}.claimName", f"the site names no directory for {claim!r} (volumes.pvc)")
    return VolumePlan(name, host_path=path, host_type="Directory")


def _mounts_of(container: ContainerView) -> list[tuple[str, Mapping[str, Any]]]:
    where = f"{container.path}.volumeMounts"
    mounts = items(container.raw.get("volumeMounts"), where)
    return [(f"{where}[{index}]", mapping(raw, f"{where}[{index}]")) for index, raw in enumerate(mounts)]


def _container(
    container: ContainerView, volumes: Mapping[str, Any], plans: Mapping[str, VolumePlan]
) -> tuple[MountPlan, ...]:
    mounts: dict[str, MountPlan] = {}
    env = dict(expand.env(container.env))
    for where, mount in _mounts_of(container):
        name = text(mount.get("name"), f"{where}.name")
        if name not in volumes:
            raise Invalid(f"{where}.name", f"no volume of this pod is called {name!r}")
        path = _mount_path(mount.get("mountPath"), f"{where}.mountPath")
        read_only = mount.get("readOnly") is True
        _check_recursive(mount, read_only, f"{where}.recursiveReadOnly")
        sub = _no_return(subpath.of_mount(mount, where, env), f"{where}.subPath")
        if path in mounts:
            raise Invalid(f"{where}.mountPath", f"two volumes are mounted at {path!r}")
        if name in plans:
            if mount.get("recursiveReadOnly") == "Enabled" and plans[name].host_path is not None:
                raise Unsupported(
                    f"{where}.recursiveReadOnly", "mounts inside a directory of the node may differ"
                )
            read_only = read_only or plans[name].files is not None or _never_written(*volumes[name])
            mounts[path] = MountPlan(name, path, read_only, sub)
    return tuple(sorted(mounts.values(), key=lambda mount: mount.path.split("/")))


def _mount_path(value: Any, where: str) -> str:
    """Absolute and normal; the kubelet takes a relative one from the root."""
    path = _no_return("/" + posixpath.normpath("/" + text(value, where)).lstrip("/"), where)
    if path == "/":
        raise Unsupported(where, "a volume cannot stand for the container's whole root")
    for kernel in _KERNELS:
        if path != _SHM and (path == kernel or path.startswith(f"{kernel}/")):
            raise Unsupported(where, f"nothing but {_SHM} can be mounted below /dev, /proc and /sys")
    return path


def _no_return(path: str, where: str) -> str:
    if "\r" in path:
        raise Unsupported(where, "holds a carriage return, which Apptainer's options lose")
    return path


def _check_recursive(mount: Mapping[str, Any], read_only: bool, where: str) -> None:
    value = optional(mount.get("recursiveReadOnly"), where)
    if value not in _RECURSIVE:
        raise Invalid(where, f"must be one of {', '.join(_RECURSIVE[1:])}")
    if value == "Enabled" and not read_only:
        raise Invalid(where, "Enabled needs readOnly: true")


def _never_written(where: str, volume: Mapping[str, Any]) -> bool:
    return mapping(volume.get("persistentVolumeClaim"), where).get("readOnly") is True


def _is_token(volume: Mapping[str, Any], paths: list[str]) -> bool:
    """The volume that the API server adds to every pod.

    Projected and called ``kube-api-access-…``, before Kubernetes 1.21 a Secret called
    ``…-token-…``; always mounted at one fixed path. What a user mounts elsewhere is no such thing.
    """
    name = str(volume.get("name"))
    added = (name.startswith("kube-api-access-") and volume.get("projected") is not None) or (
        "-token-" in name and volume.get("secret") is not None
    )
    return added and all(path == _ACCOUNT_PATH for path in paths)


def _was_sent(volume: Mapping[str, Any], objects: Objects, index: Index) -> bool:
    if objects.files_of(str(volume.get("name"))) is not None:
        return True
    secret = volume.get("secret")
    return isinstance(secret, Mapping) and index.named("Secret", str(secret.get("secretName"))) is not None
