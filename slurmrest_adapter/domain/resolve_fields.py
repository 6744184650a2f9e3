"""``fieldRef`` and ``resourceFieldRef``: what a pod's variables may say of the pod itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from slurmrest_adapter.domain import quantities
from slurmrest_adapter.domain.errors import Invalid, Unsupported
from slurmrest_adapter.domain.pod import items, mapping, text

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_RESOURCE = re.compile(r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-[A-Za-z0-9.]+)")
# Kubernetes takes no other divisors, so that a typo does not become a strange number.
_CPU_DIVISORS = frozenset({Fraction(1), Fraction(1, 1000)})
_BYTE_DIVISORS = frozenset({Fraction(1000**n) for n in range(7)} | {Fraction(1024**n) for n in range(7)})


def pod_field(
    pod: Mapping[str, Any],
    reference: Mapping[str, Any],
    path: str,
    node_name: str | None,
    host_ips: Sequence[str],
    pod_ips: Sequence[str],
) -> str:
    """The value of one ``fieldRef``.

    Raises:
        Invalid: no such field may be asked for.
        Unsupported: the field is not known before the job runs.
    """
    if reference.get("apiVersion") not in (None, "", "v1"):
        raise Invalid(f"{path}.apiVersion", "must be v1")
    where = f"{path}.fieldPath"
    asked = text(reference.get("fieldPath"), where)
    metadata, spec = mapping(pod.get("metadata"), "metadata"), mapping(pod.get("spec"), "spec")
    if match := _SUBSCRIPT.fullmatch(asked):
        kept = mapping(metadata.get(match[1]), f"metadata.{match[1]}")
        return text(kept.get(match[2]) or "", f"metadata.{match[1]}[{match[2]}]", True)
    values: dict[str, object] = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace") or "default",
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName") or node_name,
        "spec.serviceAccountName": spec.get("serviceAccountName") or spec.get("serviceAccount") or "default",
        "status.hostIP": next(iter(host_ips), None),
        "status.hostIPs": ",".join(host_ips),
        "status.podIP": next(iter(pod_ips), None),
        "status.podIPs": ",".join(pod_ips),
    }
    if asked not in values:
        raise Invalid(
            where, f"{asked!r} cannot be asked for; known: {', '.join(values)}, labels, annotations"
        )
    value = values[asked]
    if not value:
        raise Unsupported(where, f"{asked} is not known before the job runs")
    return text(value, asked)


def resource(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    reference: Mapping[str, Any],
    path: str,
    allocatable: Mapping[str, str],
) -> str:
    """The value of one ``resourceFieldRef``: a whole number, rounded up after the division.

    A limit that is not set is the node's allocatable amount; a request that is not set is the
    limit, as the API server fills it in, else 0.

    Raises:
        Invalid: no such container or resource, or a divisor that Kubernetes refuses.
        Unsupported: the node's allocatable amount is needed and not known.
    """
    asked = text(reference.get("resource"), f"{path}.resource")
    match = _RESOURCE.fullmatch(asked)
    if match is None:
        known = "limits or requests of cpu, memory, ephemeral-storage, hugepages-*"
        raise Invalid(f"{path}.resource", f"{asked!r} cannot be asked for; known: {known}")
    kind, name = match[1], match[2]
    other = reference.get("containerName")
    if other:
        container = _named(pod, text(other, f"{path}.containerName"), f"{path}.containerName")
    given = mapping(container.get("resources"), f"{path}.resource")
    limits = mapping(given.get("limits"), f"{path}.resource")
    requests = mapping(given.get("requests"), f"{path}.resource")
    amount = limits.get(name)
    if kind == "requests":
        asked_for = requests.get(name)
        amount = asked_for if asked_for is not None else (amount if amount is not None else "0")
    elif amount is None:
        amount = allocatable.get(name)
        if amount is None:
            raise Unsupported(
                f"{path}.resource", f"the container has no limit of {name}, nor is the node's known"
            )
    divisor = quantities.parse(reference.get("divisor") or "1", f"{path}.divisor") or Fraction(1)
    if divisor not in (_CPU_DIVISORS if name == "cpu" else _BYTE_DIVISORS):
        raise Invalid(f"{path}.divisor", "must be 1 or 1m for CPUs; 1, k … E or Ki … Ei for bytes")
    return str(math.ceil(quantities.parse_amount(amount, f"{path}.resource") / divisor))


def _named(pod: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
    spec = mapping(pod.get("spec"), "spec")
    for group in ("initContainers", "containers"):
        for index, raw in enumerate(items(spec.get(group), f"spec.{group}")):
            container = mapping(raw, f"spec.{group}[{index}]")
            if container.get("name") == name:
                return container
    raise Invalid(path, f"no container is called {name!r}")
