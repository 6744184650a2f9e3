"""slurmctld, partitions, GRES."""

from __future__ import annotations

import pytest

from slurmrest_adapter.doctor import cluster
from slurmrest_adapter.doctor.verdict import Verdict
from slurmrest_adapter.domain.gres import devices
from slurmrest_adapter.domain.jobs import NodeInfo, PartitionInfo, Ping


def node(name: str, gres: str = "", *states: str, partitions: tuple[str, ...] = ("main",)) -> NodeInfo:
    return NodeInfo(name, states or ("IDLE",), 8, 1000, gres, partitions=partitions)


@pytest.mark.parametrize(
    ("controllers", "verdict"),
    [({"a": True}, "ok"), ({"a": True, "b": False}, "warn"), ({"a": False}, "fail"), ({}, "fail")],
)
def test_the_controller(controllers: dict[str, bool], verdict: str) -> None:
    assert cluster.controller(Ping("24.11.5", controllers)).verdict.value == verdict


def test_partitions() -> None:
    found = [
        PartitionInfo("main", ("UP",), "n[1-2]"),
        PartitionInfo("off", ("DOWN",)),
        PartitionInfo("bare", ("UP",)),
    ]
    nodes = [node("n1"), node("n2")]

    def verdict(name: str, *extra: NodeInfo) -> str:
        (check,) = cluster.partitions({name: "defaults.partition"}, found, [*nodes, *extra])
        assert check.subject == name
        return check.verdict.value

    assert verdict("main") == "ok"
    assert verdict("main", node("n3", "", "IDLE", "DRAIN")) == "warn"
    assert verdict("off") == "fail"
    assert verdict("bare") == "fail"
    assert verdict("missing") == "fail"
    assert verdict(cluster.SLURM_DEFAULT) == "ok"


@pytest.mark.parametrize(
    ("gres", "name", "count"),
    [
        ("gpu:a100:4", "gpu", 4),
        ("gpu:a100:4", "gpu:a100", 4),
        ("gpu:a100:4(S:0-1),gpu:l40s:2(S:0,1)", "gpu", 6),
        ("gpu:a100:4(S:0-1),gpu:l40s:2", "gpu:l40s", 2),
        ("gpu:2", "gpu", 2),
        ("gpu:a100:4", "gpu:a10", 0),
        ("shard:8,gpu:1", "gpu", 1),
        ("", "gpu", 0),
        ("(null)", "gpu", 0),
    ],
)
def test_devices_of_a_node(gres: str, name: str, count: int) -> None:
    assert devices(gres, name) == count


def test_gres_on_reachable_nodes_alone() -> None:
    nodes = [
        node("n1", "gpu:a100:4"),
        node("n2", "gpu:l40s:2", "DOWN"),
        node("n3", "fpga:1", partitions=("other",)),
    ]
    wanted = {"gpu": "k", "gpu:l40s": "k", "fpga": "k"}
    checks = cluster.gres(wanted, nodes, {"main"})
    assert [check.verdict.value for check in checks] == ["ok", "fail", "fail"]
    assert "n2 have it" in checks[1].seen
    assert [check.verdict.value for check in cluster.gres(wanted, nodes, set())] == ["ok", "fail", "ok"]
    assert cluster.gres({}, nodes, set())[0].verdict is Verdict.SKIP


def test_what_the_configuration_names() -> None:
    resources = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu", "x.com/fpga": "fpga"}
    assert cluster.wanted_gres(resources, {"NVIDIA-A100": "a100"}) == {
        "gpu": "gpu.resources.nvidia.com/gpu",
        "fpga": "gpu.resources.x.com/fpga",
        "gpu:a100": "gpu.types.NVIDIA-A100",
    }
