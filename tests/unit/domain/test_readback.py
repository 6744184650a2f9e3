"""What the site made of a job, beside what was asked for."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from slurmrest_adapter.domain.jobs import JobInfo
from slurmrest_adapter.domain.jobspec import GpuRequest, JobSpec
from slurmrest_adapter.domain.readback import Change, changes, words

SPEC = JobSpec(
    name="train-0a1b2c3d4e5f",
    comment="sra1:x.y hello",
    user="alice",
    account="physics",
    partition="gpu,all",
    qos="high",
    cpus=2,
    memory_mib=512,
    gpus=(GpuRequest("gpu", "a100", 2), GpuRequest("gpu", None, 1)),
    time_limit_minutes=60,
)
JOB = JobInfo(
    job_id=7,
    states=("PENDING",),
    name="train-0a1b2c3d4e5f",
    comment="sra1:x.y hello",
    account="physics",
    partition="gpu,all",
    qos="high",
    cpus=2,
    memory_mib=512,
    tres_requested="cpu=2,mem=512M,node=1,billing=2,gres/gpu=3,gres/gpu:a100=2",
    time_limit_minutes=60,
)
OPEN = JobSpec(name="train-0a1b2c3d4e5f", comment="sra1:x.y hello", user="alice", cpus=2, memory_mib=512)


def found(spec: JobSpec = SPEC, **differs: Any) -> list[tuple[str, Any, Any]]:
    return [(c.field, c.asked, c.got) for c in changes(asdict(spec), replace(JOB, **differs))]


def test_nothing_changed() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("differs", "change"),
    [
        ({"name": "other"}, ("name", "train-0a1b2c3d4e5f", "other")),
        ({"account": "chemistry"}, ("account", "physics", "chemistry")),
        ({"partition": "slow"}, ("partition", "gpu,all", "slow")),
        ({"qos": "low"}, ("qos", "high", "low")),
        ({"cpus": 4}, ("cpus", 2, 4)),
        ({"memory_mib": 1024}, ("memory_mib", 512, 1024)),
        ({"time_limit_minutes": 30}, ("time_limit_minutes", 60, 30)),
        ({"comment": ""}, ("comment", "sra1:x.y hello", "")),
        ({"comment": "plugin: x"}, ("comment", "sra1:x.y hello", "plugin: x")),
        (
            {"tres_requested": "cpu=2,mem=512M,gres/gpu=1"},
            ("gres", "gres/gpu=3,gres/gpu:a100=2", "gres/gpu=1"),
        ),
        ({"tres_requested": "cpu=2,mem=512M"}, ("gres", "gres/gpu=3,gres/gpu:a100=2", "")),
        (
            {"tres_requested": JOB.tres_requested + ",gres/shard=4"},
            ("gres", "gres/gpu=3,gres/gpu:a100=2", "gres/gpu=3,gres/gpu:a100=2,gres/shard=4"),
        ),
    ],
)
def test_one_field_differs(differs: dict[str, Any], change: tuple[str, Any, Any]) -> None:
    assert found(**differs) == [change]


@pytest.mark.parametrize(
    "differs",
    [
        {"partition": "all"},  # of several one is left when the job has started
        {"account": "PHYSICS"},
        {"tres_requested": ""},  # not shown
        {"cpus": None, "memory_mib": None, "time_limit_minutes": None},
        {"account": "", "partition": "", "qos": ""},
    ],
)
def test_no_change(differs: dict[str, Any]) -> None:
    assert found(**differs) == []


def test_defaults_are_the_sites_choice() -> None:
    assert found(OPEN, tres_requested="cpu=2,mem=512M") == [
        ("account", None, "physics"),
        ("partition", None, "gpu,all"),
        ("qos", None, "high"),
        ("time_limit_minutes", None, 60),
    ]
    assert found(OPEN)[-1] == ("gres", None, "gres/gpu=3,gres/gpu:a100=2")


def test_a_type_that_the_site_adds_is_no_change() -> None:
    spec = replace(OPEN, gpus=(GpuRequest("gpu", None, 3),), account="physics", partition="gpu,all")
    assert ("gres",) not in [change[:1] for change in found(spec)]


def test_a_site_that_does_not_account_gpus() -> None:
    assert found(tres_requested="cpu=2,mem=512M", tres_per_node="gres/gpu:a100:2") == []


def test_in_words() -> None:
    both = [asdict(Change("partition", None, "gpu")), asdict(Change("cpus", 1, 2))]
    assert words(both) == "cpus: 2 instead of 1"  # the partition was left to the site
