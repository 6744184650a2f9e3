"""What the virtual node may offer: the totals of the nodes that pods can land on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from slurmrest_adapter.domain.gres import devices
from slurmrest_adapter.domain.jobs import NodeInfo

# Slurm's own words for a node that will take no job for now, whatever else it says.
_OUT = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "ERROR", "FUTURE", "UNKNOWN"})
PODS = 1000


@dataclass(frozen=True, slots=True)
class Capacity:
    """Totals.

    Attributes:
        cpus: whole CPUs.
        memory_mib: MiB.
        accelerators: Kubernetes resource → devices.
        nodes: how many nodes were counted.
    """

    cpus: int
    memory_mib: int
    accelerators: Mapping[str, int]
    nodes: int

    def resources(self) -> dict[str, object]:
        """As interLink's ping has it."""
        return {
            "cpu": str(self.cpus),
            "memory": f"{self.memory_mib}Mi",
            "pods": str(PODS),
            "accelerators": [
                {"resourceType": resource, "available": str(count)}
                for resource, count in self.accelerators.items()
            ],
        }


def total(
    nodes: Iterable[NodeInfo], partitions: Collection[str], gpu_resources: Mapping[str, str]
) -> Capacity:
    """Totals of the nodes that are neither down nor drained.

    They are totals, not what is free: Slurm queues what does not fit now, and Kubernetes'
    scheduler subtracts the pods itself.

    Args:
        nodes: as slurmctld has them.
        partitions: only nodes of these count; empty means all.
        gpu_resources: Kubernetes resource → GRES ``name`` or ``name:type``. Where two resources
            stand for the same GRES only the first is offered, or devices would count twice.
    """
    counted = [
        node
        for node in nodes
        if not _OUT & set(node.states) and (not partitions or set(node.partitions) & set(partitions))
    ]
    accelerators: dict[str, int] = {}
    offered: set[str] = set()
    for resource, gres in gpu_resources.items():
        if gres in offered:
            continue
        offered.add(gres)
        count = sum(devices(node.gres, gres) for node in counted)
        if count:
            accelerators[resource] = count
    return Capacity(
        cpus=sum(node.cpus for node in counted),
        memory_mib=sum(node.memory_mib for node in counted),
        accelerators=accelerators,
        nodes=len(counted),
    )
