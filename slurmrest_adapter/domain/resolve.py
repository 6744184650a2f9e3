"""References in a pod's environment become plain values, from the objects at hand.

``run FILE`` and vk-provider know the pod's ConfigMaps and Secrets; the sidecar never does. So
they resolve, by the kubelet's rules (kubernetes/pkg/kubelet/kubelet_pods.go), and the sidecar
refuses by name what is still unresolved.

The kubelet expands ``$(NAME)`` only in what the author wrote as ``value``. What a reference
brings in is therefore written with each ``$`` doubled, so that the expansion that comes later
gives it back as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from slurmrest_adapter.domain import resolve_fields, resolve_objects
from slurmrest_adapter.domain.env_names import is_env_name, target
from slurmrest_adapter.domain.errors import Invalid, Unsupported
from slurmrest_adapter.domain.expand import literal
from slurmrest_adapter.domain.pod import items, mapping, text

_GROUPS = ("initContainers", "containers")
_SOURCES = ("configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the node before the job runs; what is not known is refused where asked.

    Attributes:
        node_name: for ``spec.nodeName``; the pod's own field comes first.
        host_ips, pod_ips: for ``status.hostIP``, ``status.podIP`` and their plurals.
        allocatable: the node's resources as quantities; they stand for a limit that is not set.
    """

    node_name: str | None = None
    host_ips: tuple[str, ...] = ()
    pod_ips: tuple[str, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)


def resolve(
    pod: Mapping[str, Any],
    config_maps: Iterable[Mapping[str, Any]] = (),
    secrets: Iterable[Mapping[str, Any]] = (),
    facts: Facts | None = None,
) -> dict[str, Any]:
    """A copy of the pod whose containers have plain variables only.

    Args:
        pod: the raw pod; it is not changed.
        config_maps, secrets: raw objects; those of another namespace are not looked at.
        facts: what is known of the node.

    Raises:
        Invalid: an object, key or field that is not there and not optional, or a reference that
            Kubernetes would refuse.
        Unsupported: a reference to what is not known, or a value that is no text.
    """
    objects = resolve_objects.Objects(pod, config_maps, secrets)
    known = facts or Facts()
    spec = dict(mapping(pod.get("spec"), "spec"))
    for group in _GROUPS:
        if spec.get(group) is not None:
            spec[group] = [
                _container(pod, mapping(raw, where), where, objects, known)
                for raw, where in _each(spec[group], f"spec.{group}")
            ]
    return {**pod, "spec": spec}


def unresolved(pod: Mapping[str, Any]) -> list[Unsupported]:
    """Every reference in the pod's environment, by field: what the sidecar cannot resolve."""
    found: list[Unsupported] = []
    spec = mapping(pod.get("spec"), "spec")
    for group in _GROUPS:
        for raw, path in _each(spec.get(group), f"spec.{group}"):
            container = mapping(raw, path)
            for source, where in _each(container.get("envFrom"), f"{path}.envFrom"):
                found += _left(mapping(source, where), where, ("configMapRef", "secretRef"))
            for variable, where in _each(container.get("env"), f"{path}.env"):
                where = f"{where}.valueFrom"
                found += _left(mapping(mapping(variable, where).get("valueFrom"), where), where, _SOURCES)
    return found


def _left(source: Mapping[str, Any], path: str, keys: tuple[str, ...]) -> list[Unsupported]:
    return [
        Unsupported(f"{path}.{key}", f"not resolved: {target(key, source[key])}")
        for key in keys
        if source.get(key) is not None
    ]


def _container(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    path: str,
    objects: resolve_objects.Objects,
    facts: Facts,
) -> dict[str, Any]:
    variables: list[dict[str, Any]] = []
    for raw, where in _each(container.get("envFrom"), f"{path}.envFrom"):
        variables += _all_of(mapping(raw, where), where, objects)
    for raw, where in _each(container.get("env"), f"{path}.env"):
        variable = dict(mapping(raw, where))
        source = variable.pop("valueFrom", None)
        if source is not None:
            if variable.get("value"):
                raise Invalid(f"{where}.valueFrom", "cannot stand beside a value")
            value = _value(
                pod, container, mapping(source, f"{where}.valueFrom"), f"{where}.valueFrom", objects, facts
            )
            if value is None:
                continue  # optional and not there: the variable is not set at all
            variable["value"] = literal(value)
        variables.append(variable)
    done = {key: value for key, value in container.items() if key not in ("env", "envFrom")}
    if variables or container.get("env") is not None:
        done["env"] = variables
    return done


def _all_of(
    source: Mapping[str, Any], path: str, objects: resolve_objects.Objects
) -> Iterator[dict[str, Any]]:
    """The variables of one ``envFrom``; like the kubelet, keys that can be no name are left out."""
    prefix = text(source.get("prefix") or "", f"{path}.prefix", True)
    kinds = [key for key in ("configMapRef", "secretRef") if source.get(key) is not None]
    if len(kinds) != 1:
        raise Invalid(path, "exactly one of configMapRef and secretRef is needed")
    where = f"{path}.{kinds[0]}"
    data = objects.all_of(kinds[0], mapping(source[kinds[0]], where), where)
    for key in sorted(data):
        if is_env_name(prefix + key):
            yield {"name": prefix + key, "value": literal(data[key])}


def _value(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    source: Mapping[str, Any],
    path: str,
    objects: resolve_objects.Objects,
    facts: Facts,
) -> str | None:
    kinds = [key for key, reference in source.items() if reference is not None]
    if len(kinds) != 1:
        raise Invalid(path, f"exactly one of {', '.join(_SOURCES)} is needed")
    kind, where = kinds[0], f"{path}.{kinds[0]}"
    reference = mapping(source[kind], where)
    match kind:
        case "configMapKeyRef" | "secretKeyRef":
            return objects.key_of(kind, reference, where)
        case "fieldRef":
            return resolve_fields.pod_field(
                pod, reference, where, facts.node_name, facts.host_ips, facts.pod_ips
            )
        case "resourceFieldRef":
            return resolve_fields.resource(pod, container, reference, where, facts.allocatable)
        case "fileKeyRef":
            raise Unsupported(where, "not yet carried: the file would be made by a container")
    raise Unsupported(where, "unknown source of a value")


def _each(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    for index, item in enumerate(items(value, path)):
        yield item, f"{path}[{index}]"
