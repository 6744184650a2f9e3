"""What cannot be submitted: one line that names the field or the cause, exit code 125, no job."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import SLURM_LAB, Cli, Done, Lab

pytestmark = pytest.mark.slurm
Pods = Callable[..., dict[str, Any]]


def refused(done: Done, *words: str) -> None:
    """One line of error on standard error, with these words, exit code 125, and an error document."""
    assert done.code == 125, done.out + done.err
    # A pod that got as far as its submit is named first.
    *before, _ = done.err.strip().splitlines()
    assert [one.endswith(": submitting") for one in before] in ([], [True]), done.err
    for word in words:
        assert word in done.err
    document = done.json()
    assert document["schema"] == "slurmrest-adapter/error/v1"
    assert document["error"] in done.err


@pytest.fixture
def no_new_job(lab: Lab, pod: Pods) -> Iterator[str]:
    """A pod's name that no job may have been given afterwards."""
    name = f"refused-{time.time_ns()}"
    yield name
    assert name[:40] not in lab.exec("squeue", "-h", "-o", "%j")
    assert name[:40] not in lab.exec(
        "sacct", "-a", "-X", "-n", "-P", "-S", "now-10minutes", "-o", "JobName%60"
    )


def test_unknown_partition(cli: Cli, pod: Pods, no_new_job: str) -> None:
    done = cli.configure(defaults={"partition": "nowhere"}).run(pod(main="true", name=no_new_job))
    refused(done, "partition", "2000")


def test_more_than_any_node_has(cli: Cli, pod: Pods, lab: Lab) -> None:
    name = f"refused-{time.time_ns()}"
    refused(cli.run(pod(main="true", name=name, gpus=9)), "Slurm refused")
    # slurmctld gives such a request a number and accounts it as FAILED, but queues nothing.
    assert name not in lab.exec("squeue", "-h", "-o", "%j")
    accounted = lab.exec("sacct", "-a", "-X", "-n", "-P", "-S", "now-5minutes", "-o", "JobName%60,State")
    assert {line.split("|")[1] for line in accounted.splitlines() if name in line} <= {"FAILED"}


def test_unmapped_namespace(cli: Cli, pod: Pods, no_new_job: str) -> None:
    done = cli.run(pod(main="true", name=no_new_job, namespace="strangers"))
    refused(done, "metadata.namespace", "strangers")


def test_a_bad_account(cli: Cli, pod: Pods, no_new_job: str) -> None:
    line = {"namespace": "physics", "user": "alice", "account": "nobodys", "uid": 2001, "gid": 2001}
    refused(cli.configure(identity={"map": [line]}).run(pod(main="true", name=no_new_job)), "account")


def test_malformed_yaml(cli: Cli) -> None:
    refused(cli("run", "--output", "json", "-", stdin="kind: Pod\nspec: [1, 2"), "YAML", "line")


def test_not_a_pod(cli: Cli) -> None:
    refused(
        cli("run", "-o", "json", "-", stdin="apiVersion: apps/v1\nkind: Deployment\n"), "kind", "Deployment"
    )


def test_a_bad_quantity(cli: Cli, pod: Pods, no_new_job: str) -> None:
    made = pod(main={"command": ["true"], "resources": {"limits": {"memory": "1 Gi"}}}, name=no_new_job)
    refused(cli.run(made), "spec.containers[0].resources.limits.memory", "1 Gi")


def test_what_cannot_be_carried(cli: Cli, pod: Pods, no_new_job: str) -> None:
    made = pod(main="true", name=no_new_job)
    made["spec"]["containers"][0]["livenessProbe"] = {"exec": {"command": ["true"]}}
    refused(cli.run(made), "spec.containers[0].livenessProbe")


def test_no_token(cli: Cli, pod: Pods, no_new_job: str) -> None:
    done = cli.configure(slurm={"token": {"source": "none"}}).run(pod(main="true", name=no_new_job))
    refused(done, "token")


def test_a_wrong_key(cli: Cli, pod: Pods, no_new_job: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"x" * 32)
    token = {"source": "hs256", "key_file": str(key)}
    refused(cli.configure(slurm={"token": token}).run(pod(main="true", name=no_new_job)), str(key))


def test_an_expired_token(cli: Cli, pod: Pods, no_new_job: str, lab: Lab, tmp_path: Path) -> None:
    printed = subprocess.run(
        [SLURM_LAB, "token", "alice", "--lifetime", "-60"], check=True, capture_output=True, text=True
    )
    file = tmp_path / "token"
    file.write_text(printed.stdout)
    token = {"source": "file", "file": str(file), "key_file": None}
    done = cli.configure(slurm={"token": token, "service_user": None}).run(pod(main="true", name=no_new_job))
    refused(done, "expired", str(file))
    assert printed.stdout.strip() not in done.err + done.out


def test_a_wrong_url(cli: Cli, pod: Pods, no_new_job: str) -> None:
    done = cli.configure(slurm={"endpoints": ["http://127.0.0.1:1"]}).run(pod(main="true", name=no_new_job))
    refused(done, "http://127.0.0.1:1")


def test_an_unknown_key(cli: Cli, pod: Pods) -> None:
    refused(cli.configure(slurm={"endpoint": "x"}).run(pod(main="true")), "slurm.endpoint", "endpoints")


@pytest.mark.disruptive
def test_slurmctld_down(cli: Cli, pod: Pods, lab: Lab) -> None:
    running = cli.detach(pod(main="sleep 100"))
    cli.until(running["uid"], lambda d: d["phase"] == "Running")
    lab.daemon("stop", "slurmctld")
    try:
        done = cli.run(pod(main="true"))
        # "Could not ask" changes nothing about a pod that runs.
        meanwhile = cli.status(running["uid"])
    finally:
        lab.daemon("start", "slurmctld")
    refused(done, "slurmctld")
    assert meanwhile["phase"] == "Running"
    assert "could not be asked" in meanwhile["message"]
    assert cli.until(running["uid"], lambda d: "could not" not in d["message"])["phase"] == "Running"
