"""slurmctld, partitions and GRES, judged from what slurmctld said. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from slurmrest_adapter.doctor.verdict import Check, fail, ok, skip, warn
from slurmrest_adapter.domain.gres import devices
from slurmrest_adapter.domain.jobs import NodeInfo, PartitionInfo, Ping
from slurmrest_adapter.server.capacity import total

SLURMCTLD, PARTITION, GRES = "slurmctld", "partition", "gres"
SLURM_DEFAULT = "(Slurm's default)"


def controller(ping: Ping) -> Check:
    """Whether a slurmctld answers."""
    down = [host for host, up in ping.controllers.items() if not up]
    if not ping.up:
        return fail(
            SLURMCTLD,
            f"no slurmctld answers slurmrestd {ping.release} ({', '.join(down) or 'none is known'})",
            "start slurmctld; systemctl status slurmctld and its log say why it ended",
        )
    if down:
        return warn(
            SLURMCTLD, f"Slurm {ping.release}; {', '.join(down)} does not answer", "start that slurmctld too"
        )
    return ok(SLURMCTLD, f"Slurm {ping.release}, up on {', '.join(ping.controllers)}")


def partitions(
    wanted: Mapping[str, str], found: Sequence[PartitionInfo], nodes: Sequence[NodeInfo]
) -> list[Check]:
    """Each partition that pods may be sent to: it exists, is up and has a node that takes jobs.

    Args:
        wanted: partition → the configuration's key that names it; `SLURM_DEFAULT` where none does.
    """
    known = {partition.name: partition for partition in found}
    checks = []
    for name, key in wanted.items():
        if name == SLURM_DEFAULT:
            checks.append(ok(PARTITION, "none is configured: Slurm chooses its default", name))
            continue
        partition = known.get(name)
        if partition is None:
            checks.append(
                fail(
                    PARTITION,
                    f"Slurm shows no partition {name}; it has {', '.join(sorted(known)) or 'none'}",
                    f"correct {key}, or make the partition in slurm.conf",
                    name,
                )
            )
            continue
        checks.append(_partition(partition, [node for node in nodes if name in node.partitions]))
    return checks


def _partition(partition: PartitionInfo, nodes: Sequence[NodeInfo]) -> Check:
    name = partition.name
    if partition.states and "UP" not in partition.states:
        return fail(
            PARTITION,
            f"{name} is {'+'.join(partition.states)}: jobs wait or are refused there",
            f"scontrol update PartitionName={name} State=UP",
            name,
        )
    up = sum(takes_jobs(node) for node in nodes)
    if not up:
        states = ", ".join(f"{node.name} {'+'.join(node.states)}" for node in nodes[:4])
        return fail(
            PARTITION,
            f"{name} has no node that takes jobs ({states or 'it has no nodes'})",
            "scontrol show node says why; scontrol update NodeName=… State=RESUME brings one back",
            name,
        )
    if up < len(nodes):
        return warn(
            PARTITION,
            f"{name} is up, but only {up} of its {len(nodes)} nodes take jobs",
            "sinfo -R says why the others do not",
            name,
        )
    return ok(PARTITION, f"{name} is up, {up} nodes ({partition.nodes})", name)


def gres(wanted: Mapping[str, str], nodes: Iterable[NodeInfo], reachable: Collection[str]) -> list[Check]:
    """Each GRES that the configuration names exists on a node that pods can reach.

    Args:
        wanted: GRES ``name`` or ``name:type`` → the configuration's key that names it.
        reachable: partitions; empty means any.
    """
    if not wanted:
        return [skip(GRES, "the configuration names no GRES")]
    where = f"in partition {', '.join(sorted(reachable))}" if reachable else "in any partition"
    having = list(nodes)
    taking = [
        node
        for node in having
        if takes_jobs(node) and (not reachable or set(node.partitions) & set(reachable))
    ]
    checks = []
    for name, key in wanted.items():
        count = sum(devices(node.gres, name) for node in taking)
        if count:
            checks.append(ok(GRES, f"{count} {name} {where}", name))
            continue
        elsewhere = sorted(node.name for node in having if devices(node.gres, name))
        hint = f"; nodes {', '.join(elsewhere)} have it, but are down or elsewhere" if elsewhere else ""
        checks.append(
            fail(
                GRES,
                f"no node that takes jobs {where} has gres/{name}{hint}",
                f"correct {key} (a site without GPUs says gpu: {{resources: {{}}}}), name a partition that "
                "has them, or define them in slurm.conf and gres.conf",
                name,
            )
        )
    return checks


def takes_jobs(node: NodeInfo) -> bool:
    """Whether it is neither down nor drained, as the virtual node counts it too."""
    return total([node], (), {}).nodes == 1


def wanted_gres(resources: Mapping[str, str], types: Mapping[str, str]) -> dict[str, str]:
    """GRES → the key that names it; a type belongs to the name that the resources have."""
    found: dict[str, str] = {}
    for resource, gres in resources.items():
        found.setdefault(gres, f"gpu.resources.{resource}")
    # Products are NVIDIA's (nvidia.com/gpu.product), so their GRES is that resource's.
    name = resources.get("nvidia.com/gpu", "gpu").partition(":")[0]
    for product, kind in types.items():
        found.setdefault(f"{name}:{kind}", f"gpu.types.{product}")
    return found
