"""What the gateway is asked, through every version that each release serves."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from slurmrest_adapter.domain.errors import NotFound
from slurmrest_adapter.domain.jobspec import GpuRequest
from slurmrest_adapter.slurm import negotiate
from tests.slurm.contract.conftest import NOTHING, OPERATOR, SERVED, UNKNOWN_JOB, Room, Site, wait

pytestmark = pytest.mark.slurm


def test_every_version_that_is_served_and_spoken_is_in_this_suite(site: Site) -> None:
    common = set(site.served) & set(negotiate.OURS)
    assert common
    assert common <= set(SERVED[site.release])
    gateway = site.gateway(service_user=OPERATOR)
    assert gateway.ping().up
    assert gateway.api_version == max(common)


def test_ping(room: Room) -> None:
    found = room.gateway.ping()
    assert found.up
    assert found.release.partition(".")[0].isdecimal()
    assert list(found.controllers) == ["slurmhost"]
    assert room.gateway.api_version == room.version


def test_partitions(room: Room) -> None:
    found = {partition.name: partition for partition in room.gateway.partitions()}
    gpu = found["gpu"]
    assert (gpu.states, gpu.nodes, gpu.max_time_minutes) == (("UP",), "n[1-3]", 24 * 60)
    assert gpu.total_cpus == 40
    assert "gres/gpu:a100=8" in gpu.tres
    assert found["all"].max_time_minutes is None
    assert found["cpu"].default_time_minutes == 10


def test_nodes(room: Room) -> None:
    found = {node.name: node for node in room.gateway.nodes()}
    assert set(found) == {"n1", "n2", "n3", "n4"}
    n1 = found["n1"]
    assert (n1.cpus, n1.memory_mib, n1.gres) == (16, 64000, "gpu:a100:4")
    assert {"a100", "nvlink"} <= set(n1.features)
    assert {"gpu", "all"} <= set(n1.partitions)
    assert n1.states


def test_a_job_gets_what_was_asked_for_and_leaves_a_record(room: Room) -> None:
    asked = room.spec(
        account="physics",
        partition="gpu",
        cpus=3,
        memory_mib=77,
        gpus=(GpuRequest("gpu", "a100", 1),),
        constraints="nvlink",
        environment={"ODD": "a b=c\n$(id) `x` ü"},
    )
    script = "#!/bin/sh\nsleep 2\ntest \"$ODD\" = 'a b=c\n$(id) `x` ü' || exit 9\nexit 3\n"
    job_id = room.submit(script, asked)
    job = room.running(job_id)
    assert (job.name, job.comment, job.user, job.account) == (asked.name, asked.comment, "alice", "physics")
    assert (job.uid, job.gid, job.partition, job.qos) == (2001, 2001, "gpu", "normal")
    assert (job.cpus, job.memory_mib, job.time_limit_minutes) == (3, 77, 3)
    assert [gres.partition("(")[0] for gres in job.gres] == ["gpu:a100:1"]
    assert job.nodes in ("n1", "n2")
    assert "gres/gpu:a100=1" in job.tres_allocated
    assert job.submit_time
    assert job.start_time
    assert room.gateway.states([job_id])[job_id].states[0] == "RUNNING"
    assert room.gateway.states()[job_id].job_id == job_id
    assert room.gateway.states([job_id, UNKNOWN_JOB]).keys() == {job_id}
    assert room.site.lab("exec", "scontrol", "write", "batch_script", str(job_id), "-") == script

    record = room.ended(job_id)
    assert (record.job_id, record.states, record.exit_code.return_code) == (job_id, ("FAILED",), 3)
    assert (record.name, record.comment, record.user) == (asked.name, asked.comment, "alice")
    expected = {"cpu": 3, "mem": 77, "gres/gpu": 1, "gres/gpu:a100": 1}
    assert expected.items() <= record.tres_allocated.items()
    assert record.elapsed_seconds >= 2
    assert record.cpu_user_seconds + record.cpu_system_seconds > 0
    now = wait(lambda: room.gateway.job(job_id, "alice"), lambda job: job.states == ("FAILED",))
    assert (now.reason, now.exit_code.return_code) == ("NonZeroExitCode", 3)
    # The job of the same id is asked for, not whatever slurmdbd lists first.
    other = room.submit(NOTHING)
    assert room.ended(other).job_id == other


def test_unknown_jobs(room: Room) -> None:
    gateway = room.gateway
    for call in (
        lambda: gateway.job(UNKNOWN_JOB, "alice"),
        lambda: gateway.cancel(UNKNOWN_JOB, "alice"),
        lambda: gateway.signal(UNKNOWN_JOB, "TERM", "alice"),
        lambda: gateway.hold(UNKNOWN_JOB, "alice"),
    ):
        with pytest.raises(NotFound):
            call()
    assert gateway.accounting(UNKNOWN_JOB, "alice") is None
    assert gateway.states([UNKNOWN_JOB]) == {}


def test_a_job_is_found_by_its_name(room: Room) -> None:
    gateway, asked = room.gateway, room.spec()
    assert gateway.find_by_name(asked.name, "alice") == []
    first = room.submit(spec=asked)
    assert [job.job_id for job in gateway.find_by_name(asked.name, "alice")] == [first]
    assert gateway.find_by_name(asked.name, "bob") == []
    room.running(first)
    # A twin waits for the first: singleton, and the same name.
    second = room.submit(spec=asked)
    twin = wait(lambda: gateway.job(second, "alice"), lambda job: job.reason == "Dependency")
    assert twin.states == ("PENDING",)
    assert "singleton" in twin.dependency
    gateway.cancel(first, "alice")
    room.running(second)
    assert second in [job.job_id for job in gateway.find_by_name(asked.name, "alice")]
    gateway.cancel(second, "alice")
    room.ended(second)
    found = {job.job_id: job for job in gateway.find_by_name(asked.name, "alice", int(time.time()) - 3600)}
    assert set(found) == {first, second}
    assert (found[second].comment, found[second].states[0]) == (asked.comment, "CANCELLED")


def test_a_job_that_waits_is_found_beside_one_that_has_ended(room: Room) -> None:
    blocker = room.submit()
    asked = room.spec()
    done = room.submit(NOTHING, asked)
    room.ended(done)
    waits = room.submit(spec=room.spec(name=asked.name, dependency=f"singleton,afterok:{blocker}"))
    assert {job.job_id for job in room.gateway.find_by_name(asked.name, "alice")} == {done, waits}


def test_more_ids_than_fit_into_a_request_line(room: Room) -> None:
    job_id = room.submit()
    asked = range(max(1, job_id - 30_000), job_id + 1)
    found = room.gateway.states([*asked, UNKNOWN_JOB])
    assert job_id in found
    assert UNKNOWN_JOB not in found
    near = range(max(1, job_id - 399), job_id + 1)
    assert job_id in room.gateway.states(near)


def test_more_callers_than_slurmrestd_has_connections(room: Room) -> None:
    with ThreadPoolExecutor(130) as callers:
        answers = list(callers.map(lambda _: room.gateway.states([UNKNOWN_JOB]), range(260)))
    assert answers == [{}] * 260
