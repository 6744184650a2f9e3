"""What the virtual node offers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmrest_adapter.domain.jobs import NodeInfo
from slurmrest_adapter.server.capacity import total

GPUS = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
# The TRES hold no GPU: sites need not account them.
N1 = NodeInfo(
    "n1", ("IDLE",), 16, 64000, gres="gpu:a100:4(S:0-1)", tres="cpu=16,mem=64000M", partitions=("gpu", "all")
)
N2 = replace(N1, name="n2", states=("MIXED", "PLANNED"))
N3 = NodeInfo("n3", ("ALLOCATED",), 8, 32000, gres="gpu:l40s:2", partitions=("gpu",))
N4 = NodeInfo("n4", ("IDLE", "RESERVED"), 32, 64000, tres="cpu=32,mem=64000M", partitions=("cpu",))


def test_totals_of_all_nodes() -> None:
    capacity = total([N1, N2, N3, N4], (), GPUS)
    assert (capacity.cpus, capacity.memory_mib, capacity.nodes) == (72, 224000, 4)
    # One GRES is offered once: two names for the same devices would count them twice.
    assert capacity.accelerators == {"nvidia.com/gpu": 10}


def test_only_the_partitions_that_pods_can_reach() -> None:
    capacity = total([N1, N2, N3, N4], {"cpu"}, GPUS)
    assert (capacity.cpus, dict(capacity.accelerators)) == (32, {})


@pytest.mark.parametrize("word", ["DOWN", "DRAIN", "FAIL", "ERROR", "FUTURE", "UNKNOWN"])
def test_nodes_that_take_no_job_do_not_count(word: str) -> None:
    out = replace(N1, states=("IDLE", word))
    assert total([out, N2], (), GPUS).accelerators == {"nvidia.com/gpu": 4}


def test_typed_resources() -> None:
    typed = {"example.com/a100": "gpu:a100", "example.com/l40s": "gpu:l40s"}
    assert total([N1, N2, N3], (), typed).accelerators == {"example.com/a100": 8, "example.com/l40s": 2}


def test_as_the_ping_has_it() -> None:
    assert total([N3], (), GPUS).resources() == {
        "cpu": "8",
        "memory": "32000Mi",
        "pods": "1000",
        "accelerators": [{"resourceType": "nvidia.com/gpu", "available": "2"}],
    }
