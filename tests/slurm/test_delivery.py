"""The plan in the job's environment: what fits arrives, and nothing is left of it where it was."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import Cli, Lab

pytestmark = pytest.mark.slurm
Pods = Callable[..., dict[str, Any]]

# Of all processes in the lab: those whose environment holds a piece of a plan.
LEFT = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        found = b"SRA_PLAN_" in open("/proc/%s/environ" % pid, "rb").read()
    except OSError:
        continue
    if found:
        print(pid, open("/proc/%s/cmdline" % pid, "rb").read().split(b"\\0")[:2])
"""


def secret(name: str, data: bytes) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "physics"},
        "data": {"key": base64.b64encode(data).decode()},
    }


@pytest.fixture
def carried(cli: Cli) -> Cli:
    """The command line of a site that sends plans in the environment."""
    return cli.configure(plan={"delivery": "environment"})


def mounting(pod: Pods, *names: str, script: str) -> dict[str, Any]:
    mounts = [{"name": name, "mountPath": f"/secrets/{name}"} for name in names]
    return pod(
        main={"command": ["sh", "-c", script], "volumeMounts": mounts},
        spec={"volumes": [{"name": name, "secret": {"secretName": name}} for name in names]},
    )


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_secrets_of_every_size_arrive_and_leave_no_trace(
    carried: Cli, pod: Pods, lab: Lab, mode: str
) -> None:
    carried = carried.configure(podrunner={"mode": mode})
    sizes = {"one": 1, "middle": 127 * 1024, "whole": 1024 * 1024}
    data = {name: os.urandom(size) for name, size in sizes.items()}
    # Two of them together are the most that Kubernetes lets one Secret hold, and more.
    made = mounting(
        pod, *sizes, script="sha256sum /secrets/*/key | cut -c1-64; env | grep -c SRA_; sleep 1000"
    )
    document = carried.run(made, *(secret(*item) for item in data.items()), options=("--detach",)).json()
    uid = document["uid"]
    carried.until(uid, lambda _: len(carried("logs", uid).out.split()) == 4)
    assert carried("logs", uid).out.split() == [
        *(hashlib.sha256(data[name]).hexdigest() for name in sorted(sizes)),
        "0",
    ]
    # While it runs: neither the runner nor anything it started has a piece in its environment.
    assert lab.exec("python3", "-c", LEFT) == ""
    directory = _directory(lab, uid)
    assert {path.name for path in directory.iterdir()} >= {"status.json", "claim", "logs"}
    assert not (directory / "plan.json").exists()
    assert carried("delete", uid, "--grace-period", "0").code == 0


def _directory(lab: Lab, uid: str) -> Path:
    pods = Path(lab.env["LAB_SHARED"]) / "pods"
    for path in sorted(pods.glob("*/status.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        if json.loads(path.read_text())["uid"] == uid:
            return path.parent
    raise AssertionError(f"no directory of pod {uid}")


def test_the_look_for_traces_finds_what_a_plain_job_carries(lab: Lab) -> None:
    job = lab.exec(
        "sbatch", "--parsable", "--partition=all", "--output=/dev/null", "--export=SRA_PLAN_0=x",
        "--wrap=exec sleep 1000", user="alice",
    ).strip()  # fmt: skip
    try:
        lab.exec(
            "sh", "-c", f"for i in $(seq 600); do squeue -hj {job} -t R | grep -q . && exit; sleep 0.1; done"
        )
        lab.exec("sh", "-c", "for i in $(seq 600); do pgrep -x sleep && exit; sleep 0.1; done")
        assert lab.exec("python3", "-c", LEFT) != ""
    finally:
        lab.exec("scancel", job)


def test_a_plan_that_does_not_fit_is_refused_by_that_reason(carried: Cli, pod: Pods, lab: Lab) -> None:
    made = mounting(pod, "a", "b", script="true")
    both = [secret(name, os.urandom(900_000)) for name in ("a", "b")]
    done = carried.run(made, *both)
    assert done.code == 125
    assert "plan.delivery: environment" in done.err
    assert "plan.delivery: shared" in done.err
    # By the other way it goes.
    assert carried.configure(plan={"delivery": "shared"}).run(made, *both).code == 0


def requeue(lab: Lab, job: str) -> None:
    """Have a running job start again, at once: Slurm itself would wait for two minutes."""
    lab.exec("scontrol", "requeue", job)
    # slurmd counts in seconds: a start within the one of the kill is refused ("already killed").
    time.sleep(2)
    again = f"scontrol update job={job} StartTime=now; squeue -hj {job} -t R | grep -q . && exit"
    lab.exec("sh", "-c", f"for i in $(seq 300); do {again}; sleep 0.2; done; exit 1")


@pytest.mark.parametrize("delivery", ["shared", "environment"])
def test_a_requeued_job_has_its_plan_again(cli: Cli, pod: Pods, lab: Lab, delivery: str) -> None:
    """By the pod's own wish."""
    cli = cli.configure(plan={"delivery": delivery})
    made = mounting(pod, "keys", script="cat /secrets/keys/key; sleep 1000")
    made["metadata"]["annotations"] = {"slurm-job.vk.io/requeue": "true"}
    done = cli.run(made, secret("keys", b"still here"), options=("--detach",))
    uid = done.json()["uid"]
    cli.until(uid, lambda _: cli("logs", uid).out == "still here")
    first = cli.status(uid)
    assert (first["containers"][0]["restarts"], first["containers"][0]["lastState"]) == (0, None)
    job = str(first["job"]["id"])
    requeue(lab, job)
    seen = cli.until(uid, lambda d: d["containers"][0]["restarts"] == 1 and d["phase"] == "Running")
    cli.until(uid, lambda _: cli("logs", uid).out == "still here")
    assert seen["job"]["id"] == int(job)
    # Of the run before: it was ended by Slurm, with a record of its end or without.
    assert seen["containers"][0]["lastState"]["exitCode"] in (137, 143)
    assert cli("logs", "--previous", uid).out == "still here"
    # Its end is an end, once it comes.
    assert cli("delete", uid, "--grace-period", "0").code == 0
    assert cli.status(uid)["containers"][0]["restarts"] == 1


def test_a_job_is_not_requeued_unless_somebody_asks(cli: Cli, pod: Pods, lab: Lab) -> None:
    uid = cli.detach(pod(main="sleep 1000"))["uid"]
    seen = cli.until(uid, lambda d: d["phase"] == "Running")
    shown = lab.exec("scontrol", "show", "job", str(seen["job"]["id"]))
    assert "Requeue=0" in shown
