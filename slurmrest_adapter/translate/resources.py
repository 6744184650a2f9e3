"""How many CPUs, MiB and GPUs a pod's job needs; the only place that decides it.

Kubernetes' own rule: a container counts with its limit, else its request, else the site's
default; the app containers and the sidecars run side by side and are summed, the init containers run
one after the other, each beside the sidecars before it, so the largest sum of those counts. Rounded
up once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from slurmrest_adapter.domain import quantities
from slurmrest_adapter.domain.errors import Invalid, Unsupported
from slurmrest_adapter.domain.jobspec import GpuRequest
from slurmrest_adapter.domain.pod import ContainerView, PodView, mapping
from slurmrest_adapter.translate.site import Site

PRODUCT_LABEL = "nvidia.com/gpu.product"
# Counted by Kubernetes' scheduler, but nothing a Slurm job could be given more or less of here.
WITHOUT_EFFECT = frozenset({"ephemeral-storage"})
# Far above any node, and far below what would make lists of positions a burden.
MOST_GPUS = 1024


@dataclass(frozen=True, slots=True)
class Resources:
    """A job's resources, and each container's slice of its GPUs.

    Attributes:
        cpus: whole CPUs, at least 1.
        memory_mib: MiB, at least 1.
        gpus: what is asked of Slurm, empty without GPUs.
        slices: container name → positions in the job's list of GPUs, from 0.
    """

    cpus: int
    memory_mib: int
    gpus: tuple[GpuRequest, ...]
    slices: Mapping[str, tuple[int, ...]]


def of_pod(pod: PodView, site: Site) -> Resources:
    """A pod's resources.

    Raises:
        Invalid: a bad quantity, a fraction of a GPU, a GPU limit unlike its request, more GPUs
            than any node has.
        Unsupported: a resource the site has no GRES for, two kinds of GPU in one pod, a GPU
            product the site has no type for.
    """
    containers = list(pod.containers())
    cpus = _peak(containers, [_amount(c, "cpu", Fraction(site.cpus)) for c in containers])
    default = quantities.parse(site.memory, "defaults.memory")
    memory = _peak(containers, [_amount(c, "memory", default) for c in containers])
    gpus, slices = _gpus(pod, containers, site)
    return Resources(quantities.cpus_ceil(cpus), quantities.mib_ceil(memory), gpus, slices)


def _peak(containers: Iterable[ContainerView], amounts: list[Fraction]) -> Fraction:
    """What is in use at the worst moment: all that run on at once, or an init container beside some."""
    together, largest_init = Fraction(0), Fraction(0)
    for container, amount in zip(containers, amounts, strict=True):
        if container.init and not container.sidecar:
            largest_init = max(largest_init, together + amount)
        else:
            together += amount
    return max(together, largest_init)


def _amount(container: ContainerView, resource: str, default: Fraction) -> Fraction:
    values = {}
    for kind in ("limits", "requests"):
        given = container.resources(kind).get(resource)
        if given is not None:
            where = f"{container.path}.resources.{kind}.{resource}"
            values[kind] = quantities.parse(given, where)
            if values[kind].numerator < 0:
                raise Invalid(where, f"{given!r} is negative")
    if "requests" in values and "limits" in values and values["requests"] > values["limits"]:
        raise Invalid(f"{container.path}.resources.requests.{resource}", "is more than the limit")
    return values.get("limits", values.get("requests", default))


def _gpus(
    pod: PodView, containers: list[ContainerView], site: Site
) -> tuple[tuple[GpuRequest, ...], dict[str, tuple[int, ...]]]:
    # (resource, GRES) → the field that asked first. Two resources are two kinds even where both
    # stand for one GRES: Slurm could not be told how many of each.
    kinds: dict[tuple[str, str], str] = {}
    slices: dict[str, tuple[int, ...]] = {}
    together, init_peak = 0, 0
    for container in containers:
        count = 0
        for resource, gres, whole in _asked(container, site):
            kinds.setdefault((resource, gres), f"{container.path}.resources.limits[{resource}]")
            count += whole
        slices[container.name] = tuple(range(together, together + count))
        if container.init and not container.sidecar:
            # It gives its GPUs back to the next one; those of sidecars before it stay theirs.
            init_peak = max(init_peak, together + count)
        else:
            together += count
    total = max(together, init_peak)
    if not total:
        return (), slices
    if len(kinds) > 1:
        asked = ", ".join(resource for resource, _ in kinds)
        raise Unsupported(list(kinds.values())[1], f"two kinds of GPU in one pod ({asked})")
    if total > MOST_GPUS:
        raise Invalid(next(iter(kinds.values())), f"asks for more GPUs than any node has ({MOST_GPUS})")
    name, _, kind = next(iter(kinds))[1].partition(":")
    return (GpuRequest(name, _product_type(pod, site, kind), total),), slices


def _asked(container: ContainerView, site: Site) -> list[tuple[str, str, int]]:
    """The GPU resources of a container, their GRES, how many; anything unknown is refused by name."""
    found: dict[str, str] = {}
    for kind in ("limits", "requests"):
        for resource, given in container.resources(kind).items():
            if given is None or resource in ("cpu", "memory") or resource in WITHOUT_EFFECT:
                continue
            if resource not in site.gpu_resources:
                raise Unsupported(
                    f"{container.path}.resources.{kind}[{resource}]",
                    f"this site has no GRES for it; known: {', '.join(site.gpu_resources) or 'none'}",
                )
            found[resource] = site.gpu_resources[resource]
    counted = [(resource, gres, _whole(container, resource)) for resource, gres in found.items()]
    return [asked for asked in counted if asked[2]]


def _whole(container: ContainerView, resource: str) -> int:
    """How many devices; limit and request must agree, as Kubernetes demands of extended resources."""
    counts = {}
    for kind in ("limits", "requests"):
        given = container.resources(kind).get(resource)
        if given is None:
            continue
        where = f"{container.path}.resources.{kind}[{resource}]"
        value = quantities.parse(given, where)
        if value.denominator != 1 or value.numerator < 0:
            raise Invalid(where, f"{given!r} is no whole number of devices")
        if value.numerator > MOST_GPUS:
            raise Invalid(where, f"{given!r} is more than any node has ({MOST_GPUS})")
        counts[kind] = value.numerator
    if "limits" not in counts:
        raise Invalid(f"{container.path}.resources.limits[{resource}]", "is needed where a request is given")
    if counts.get("requests", counts["limits"]) != counts["limits"]:
        raise Invalid(f"{container.path}.resources.requests[{resource}]", "must equal the limit")
    return counts["limits"]


def _product_type(pod: PodView, site: Site, kind: str) -> str | None:
    """The GRES type: what the resource's mapping fixes, else what the node selector asks for."""
    selector = mapping(pod.spec.get("nodeSelector"), "spec.nodeSelector")
    product = selector.get(PRODUCT_LABEL)
    if product is None:
        return kind or None
    where = f"spec.nodeSelector[{PRODUCT_LABEL}]"
    wanted = site.gpu_types.get(str(product))
    if wanted is None:
        raise Unsupported(
            where, f"{product!r} is no GPU product of this site; known: {', '.join(site.gpu_types) or 'none'}"
        )
    if kind and kind != wanted:
        raise Invalid(where, f"asks for type {wanted}, but the resource stands for type {kind}")
    return wanted
