"""Which ConfigMaps and Secrets a pod names, and fetching them.

What is missing and not optional stops the pod with the kubelet's own reason, and it is tried
again: people often create the pod first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurmrest_adapter.domain.errors import AdapterError
from vk_provider.cache import Pod, names_of
from vk_provider.kube import KubeClient, NotFound, path

_PLURALS = {"ConfigMap": "configmaps", "Secret": "secrets"}
_ENV_KEYS = {
    "configMapKeyRef": "ConfigMap",
    "configMapRef": "ConfigMap",
    "secretKeyRef": "Secret",
    "secretRef": "Secret",
}


class NotYet(AdapterError):
    """Something the pod needs is not there; the pod stays Pending and is tried again.

    Attributes:
        reason: of the containers that wait.
        event: reason of the event.
        containers: names of the containers concerned, empty for all.
    """

    def __init__(
        self, reason: str, event: str, message: str, containers: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(message)
        self.reason, self.event, self.message, self.containers = reason, event, message, containers


@dataclass(frozen=True, slots=True)
class Reference:
    """One mention of a ConfigMap or Secret.

    Attributes:
        kind: ConfigMap or Secret.
        optional: the pod can do without it.
        container: the container whose environment needs it, "" for a volume.
        volume: the volume made of it, "" for an environment.
    """

    kind: str
    name: str
    optional: bool
    container: str = ""
    volume: str = ""


@dataclass(slots=True)
class Objects:
    """Fetched objects by kind and name; None where there is no such object."""

    found: dict[tuple[str, str], Mapping[str, Any] | None] = field(default_factory=dict)

    def get(self, kind: str, name: str) -> Mapping[str, Any] | None:
        """One object, None when it is not there."""
        return self.found.get((kind, name))

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        """All objects of one kind that are there."""
        return [thing for (known, _), thing in self.found.items() if known == kind and thing is not None]


def references(pod: Pod) -> Iterator[Reference]:
    """Every ConfigMap and Secret that environments and volumes mention."""
    spec = pod.get("spec") or {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        named = str(container.get("name") or "")
        sources = [variable.get("valueFrom") for variable in container.get("env") or ()]
        for source in [*(container.get("envFrom") or ()), *sources]:
            for key, kind in _ENV_KEYS.items():
                reference = (source or {}).get(key)
                if reference and reference.get("name"):
                    yield Reference(kind, reference["name"], bool(reference.get("optional")), container=named)
    for volume in spec.get("volumes") or ():
        yield from _of_volume(volume)


def _of_volume(volume: Mapping[str, Any]) -> Iterator[Reference]:
    named = str(volume.get("name") or "")
    sources: Iterable[Mapping[str, Any]] = (volume.get("projected") or {}).get("sources") or ()
    for source in (volume, *sources):
        for key, kind, name_key in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
            reference = source.get(key)
            if not reference:
                continue
            name = reference.get(name_key) or reference.get("name")  # "name" inside a projected volume
            if name:
                yield Reference(kind, name, bool(reference.get("optional")), volume=named)


def fetch(api: KubeClient, pod: Pod) -> Objects:
    """Fetch what the pod mentions, each object once.

    Raises:
        NotYet: an object that is not optional is not there.
        KubeError: the API server could not be asked, or did not let us.
    """
    namespace, _ = names_of(pod)
    mentioned = list(references(pod))
    objects = Objects()
    for kind, name in dict.fromkeys((each.kind, each.name) for each in mentioned):
        where = path("api", "v1", "namespaces", namespace, _PLURALS[kind], name)
        try:
            objects.found[kind, name] = api.get(where)
        except NotFound:
            objects.found[kind, name] = None
    missing = [each for each in mentioned if not each.optional and objects.get(each.kind, each.name) is None]
    for each in missing:
        if each.volume:
            raise mount_failed(each.volume, f'{each.kind.lower()} "{each.name}" not found')
    for each in missing:
        concerned = frozenset(m.container for m in missing if (m.kind, m.name) == (each.kind, each.name))
        words = f'{each.kind.lower()} "{each.name}" not found'
        raise NotYet("CreateContainerConfigError", "Failed", words, concerned)
    return objects


def mount_failed(volume: str, why: str) -> NotYet:
    """A volume that cannot be made yet, in the kubelet's words."""
    return NotYet(
        "ContainerCreating", "FailedMount", f'MountVolume.SetUp failed for volume "{volume}" : {why}'
    )
