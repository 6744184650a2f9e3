"""``doctor`` on the real lab: all is well there, and on broken sites it says what is wrong and what to do."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import SLURM_LAB, Cli, Lab

pytestmark = pytest.mark.slurm


@dataclass
class Told:
    """What one call of doctor said."""

    code: int
    document: dict[str, Any]
    err: str

    def verdicts(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for check in self.document["checks"]:
            found.setdefault(check["check"], set()).add(check["verdict"])
        return found

    def failed(self, name: str, *words: str) -> dict[str, Any]:
        """The failed check of that name; its text, with what to do, holds the words."""
        assert self.code == 1
        assert self.document["verdict"] == "fail"
        failed = [c for c in self.document["checks"] if c["check"] == name and c["verdict"] == "fail"]
        assert failed, self.document["checks"]
        text = f"{failed[0]['seen']} {failed[0]['advice']}"
        assert failed[0]["advice"]
        for word in words:
            assert word in text
        found: dict[str, Any] = failed[0]
        return found

    def only(self, *names: str) -> None:
        """Nothing else failed: one fault is not told as many."""
        assert {c["check"] for c in self.document["checks"] if c["verdict"] == "fail"} == set(names)


def doctor(cli: Cli, *options: str) -> Told:
    done = cli("doctor", "--output", "json", *options)
    document = done.json()
    assert document["schema"] == "slurmrest-adapter/doctor/v1"
    return Told(done.code, document, done.err)


@pytest.fixture
def own(cli: Cli, lab: Lab) -> Iterator[Cli]:
    """The command line with a shared directory of its own, in which nothing may be left."""
    shared = Path(lab.env["LAB_SHARED"]) / f"doctor-{os.getpid()}-{time.time_ns()}"
    shared.mkdir()
    shared.chmod(0o711)
    yield cli.configure(shared_dir=str(shared), shared_dir_on_nodes=f"/shared/{shared.name}")
    shared.rmdir()  # refused by a directory that is not empty


def test_a_healthy_lab_is_all_green(own: Cli, lab: Lab) -> None:
    Path(own.directory / "state").mkdir(mode=0o700)
    told = doctor(own.configure(defaults={"partition": "gpu"}))
    assert told.code == 0, told.document
    assert told.document["verdict"] == "ok", told.document
    assert {c["verdict"] for c in told.document["checks"]} == {"ok"}, told.document
    assert told.document["apiVersion"] == "v0.0.42"
    assert set(told.verdicts()) >= {
        *("config", "secrets", "identity", "state-dir", "shared-dir", "endpoint", "token", "users"),
        *("api-version", "slurmctld", "partition", "gres", "accounting", "accounting-flags"),
        *("submit-plugins", "job", "shared-dir-on-node", "python", "apptainer", "namespaces"),
        *("squashfuse", "fuse", "gpu-devices", "image-cache", "registry"),
    }
    assert "asking a node of partition gpu" in told.err
    key = Path(lab.env["LAB_JWT_KEY"]).read_bytes()
    assert "eyJ" not in json.dumps(told.document) + told.err
    assert key.hex() not in json.dumps(told.document)


def test_it_says_what_plans_in_the_environment_mean(own: Cli) -> None:
    told = doctor(own.configure(defaults={"partition": "gpu"}, plan={"delivery": "environment"}))
    said = next(check for check in told.document["checks"] if check["check"] == "plan-delivery")
    # The lab's AccountingStoreFlags has job_env, so that tests can find what is kept there.
    assert said["verdict"] == "warn", told.document
    assert "job_env" in said["seen"]
    assert "sacct --env-vars" in said["seen"]
    assert "plan.delivery: shared" in said["advice"]


def test_an_installed_runner_is_looked_at(own: Cli, lab: Lab) -> None:
    name = f"podrunner-{time.time_ns()}"
    file = Path(lab.env["LAB_SHARED"]) / name
    installed = own.configure(defaults={"partition": "gpu"}, podrunner={"path": f"/shared/{name}"})
    assert verdict_of(installed) == "fail"
    file.write_text(installed("podrunner").out)
    file.chmod(0o644)
    try:
        assert verdict_of(installed) == "ok"
    finally:
        file.unlink()


def verdict_of(installed: Cli) -> str:
    told = doctor(installed).document["checks"]
    return str(next(one["verdict"] for one in told if one["check"] == "pod-runner"))


def test_people_get_a_table(cli: Cli) -> None:
    done = cli("doctor", "--no-jobs")
    assert done.code == 0
    assert "✓ ok" in done.out
    assert "- skip" in done.out  # what only a node can tell
    assert "failed" not in done.out
    assert done.err == ""  # no job, no progress


def test_each_configured_partition_is_asked(own: Cli) -> None:
    lines = [
        {
            "namespace": "a",
            "user": "alice",
            "account": "physics",
            "partition": "cpu",
            "uid": 2001,
            "gid": 2001,
        },
        {"namespace": "b", "user": "bob", "account": "ai", "partition": "gpu", "uid": 2002, "gid": 2002},
    ]
    config = own.configure(defaults={"partition": None}, identity={"map": lines})
    told = doctor(config)
    assert told.code == 0, told.document
    jobs = {c["subject"]: c["seen"] for c in told.document["checks"] if c["check"] == "job"}
    assert set(jobs) == {"cpu", "gpu"}
    assert "as alice" in jobs["cpu"]
    assert "as bob" in jobs["gpu"]
    assert told.verdicts()["gpu-devices"] == {"ok", "skip"}  # cpu's node has none


def test_a_dead_endpoint(cli: Cli) -> None:
    told = doctor(cli.configure(slurm={"endpoints": ["http://127.0.0.1:1"]}))
    check = told.failed("endpoint", "connection refused", "slurm.endpoints")
    assert check["subject"] == "http://127.0.0.1:1"
    told.only("endpoint")


def test_a_dead_endpoint_beside_a_live_one(cli: Cli, lab: Lab) -> None:
    config = cli.configure(slurm={"endpoints": ["http://127.0.0.1:1", lab.env["LAB_REST"]]})
    told = doctor(config, "--no-jobs")
    assert told.code == 0
    assert told.verdicts()["endpoint"] == {"warn", "ok"}


def test_a_wrong_token(cli: Cli, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(b"x" * 32)
    told = doctor(cli.configure(slurm={"token": {"source": "hs256", "key_file": str(key)}}))
    told.failed("token", "refused by slurmctld", str(key), "jwt_key")
    told.only("token")


def test_no_token(cli: Cli) -> None:
    told = doctor(cli.configure(slurm={"token": {"source": "none"}, "service_user": None}))
    told.failed("token", "refused by slurmrestd", "slurm.token")
    told.only("token")


def test_an_expired_token(cli: Cli, tmp_path: Path) -> None:
    command = [str(SLURM_LAB), "token", "alice", "--lifetime", "-60"]
    token = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(token)
    source = {"source": "file", "file": str(file), "key_file": None}
    told = doctor(cli.configure(slurm={"token": source, "service_user": None}))
    told.failed("token", "expired at", str(file), "scontrol token")
    told.only("token")
    assert token.strip() not in json.dumps(told.document) + told.err


def test_one_users_token_for_two_users(cli: Cli, tmp_path: Path) -> None:
    command = [str(SLURM_LAB), "token", "alice"]
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    source = {"source": "file", "file": str(file), "key_file": None}
    told = doctor(cli.configure(slurm={"token": source, "service_user": None}), "--no-jobs")
    assert told.failed("users", "hs256")["subject"] == "bob"
    told.only("users")


def test_no_common_version(cli: Cli) -> None:
    told = doctor(cli.configure(slurm={"api_version": "v0.0.45"}))
    told.failed("api-version", "v0.0.45", "v0.0.40, v0.0.41, v0.0.42", "auto")
    told.only("api-version")


def test_a_missing_partition(cli: Cli) -> None:
    told = doctor(cli.configure(defaults={"partition": "nowhere"}))
    told.failed("partition", "nowhere", "all, cpu, gpu", "defaults.partition")
    told.only("partition")
    assert told.verdicts()["job"] == {"skip"}


def test_no_gres(cli: Cli) -> None:
    told = doctor(cli.configure(defaults={"partition": "cpu"}), "--no-jobs")
    check = told.failed("gres", "in partition cpu", "n1, n2, n3 have it", "gpu.resources.nvidia.com/gpu")
    assert check["subject"] == "gpu"
    told.only("gres")


def test_an_unwritable_shared_directory(cli: Cli, lab: Lab) -> None:
    shared = f"{lab.env['LAB_SHARED']}/pods"
    only_read = f"mount --bind {shlex.quote(shared)} {shlex.quote(shared)} && "
    only_read += f'mount -o remount,bind,ro {shlex.quote(shared)} && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", only_read, "sh"]
    told = doctor(Cli(lab, cli.directory, cli.overrides, prefix))
    told.failed("shared-dir", shared, "Read-only file system", "read-write")
    told.only("shared-dir")
    assert told.verdicts()["job"] == {"skip"}


def test_another_users_directory(cli: Cli, tmp_path: Path) -> None:
    shared = tmp_path / "pods"
    subprocess.run(["install", "-d", "-m", "0711", "-o", "2002", "-g", "2002", shared], check=True)
    told = doctor(cli.configure(shared_dir=str(shared)))
    told.failed("shared-dir", "2002", f"chown root {shared}")
    told.only("shared-dir")


def test_a_directory_that_the_nodes_do_not_have(cli: Cli, tmp_path: Path) -> None:
    shared = tmp_path / "pods"
    shared.mkdir(mode=0o711)
    told = doctor(cli.configure(shared_dir=str(shared), shared_dir_on_nodes="/nowhere/pods"))
    told.failed("shared-dir-on-node", "/nowhere/pods is not there", "shared_dir_on_nodes")
    # There is a directory of that name, but it is not this one.
    told = doctor(cli.configure(shared_dir=str(shared), shared_dir_on_nodes="/tmp"))
    told.failed("shared-dir-on-node", "does not show alice", "same file system")


def test_an_interpreter_that_is_not_there(cli: Cli) -> None:
    """The pod runner takes another one, and so does doctor; but it says so."""
    told = doctor(cli.configure(podrunner={"python": "/nonexistent/python"}))
    assert told.code == 0
    check = next(c for c in told.document["checks"] if c["check"] == "python")
    assert check["verdict"] == "warn"
    assert "/nonexistent/python is not there" in check["seen"]


def test_a_user_without_an_account(own: Cli) -> None:
    line = {"namespace": "physics", "user": "carol", "account": "nobodys", "uid": 2003, "gid": 2003}
    told = doctor(own.configure(identity={"map": [line]}))
    told.failed("job", "carol", "account", "sacctmgr show assoc user=carol")
    told.only("job")


def test_a_job_that_does_not_start(own: Cli, lab: Lab) -> None:
    """It is cancelled; nothing is said of a node that nobody looked at."""
    name = f"short{os.getpid()}"
    lab.exec("scontrol", "create", f"PartitionName={name}", "Nodes=n4", "MaxTime=1", "State=UP")
    try:
        config = own.configure(defaults={"partition": name}, gpu={"resources": {}, "types": {}})
        told = doctor(config, "--timeout", "2")
        left = lab.exec("squeue", "-h", "-p", name)
        lab.exec("scontrol", "update", f"PartitionName={name}", "State=INACTIVE")
        down = doctor(config)
    finally:
        lab.exec("scontrol", "delete", f"PartitionName={name}")
    assert told.code == 0, told.document
    check = next(c for c in told.document["checks"] if c["check"] == "job")
    assert check["verdict"] == "warn"
    assert "PartitionTimeLimit" in check["seen"]
    assert "--timeout" in check["advice"]
    assert told.verdicts()["python"] == {"skip"}
    assert left == ""
    down.failed("partition", "INACTIVE", "State=UP")


BROKEN = "doctor"


@pytest.fixture
def lab_to_break() -> Iterator[Lab]:
    """A lab of its own, whose nodes may lose programs."""
    subprocess.run([SLURM_LAB, "down", "--wipe", "--name", BROKEN], capture_output=True)
    up = subprocess.run(
        [SLURM_LAB, "up", "--name", BROKEN, "--port-base", "9800"], capture_output=True, text=True
    )
    assert up.returncode == 0, up.stderr
    printed = subprocess.run([SLURM_LAB, "env", "--name", BROKEN], check=True, capture_output=True, text=True)
    yield Lab(dict(word.split("=", 1) for word in shlex.split(printed.stdout)))
    subprocess.run([SLURM_LAB, "down", "--wipe", "--name", BROKEN], check=True, capture_output=True)


def test_no_slurmdbd_no_apptainer_and_no_python_on_a_node(lab_to_break: Lab, tmp_path: Path) -> None:
    """One test, since the lab is one."""
    cli = Cli(lab_to_break, tmp_path)
    programs = Path(lab_to_break.env["LAB_ROOT"]) / "usr/bin"
    subprocess.run([SLURM_LAB, "stop", "slurmdbd", "--name", BROKEN], check=True, capture_output=True)
    told = doctor(cli)
    told.failed("accounting", "slurmdbd", "start slurmdbd")
    told.only("accounting")
    assert told.verdicts()["job"] == {"ok"}  # slurmctld can do without
    subprocess.run([SLURM_LAB, "start", "slurmdbd", "--name", BROKEN], check=True, capture_output=True)

    apptainer = programs / "apptainer"
    apptainer.rename(programs / "apptainer.away")
    told = doctor(cli)
    told.failed("apptainer", "no apptainer", "install Apptainer")
    told.only("apptainer")

    (programs / "apptainer.away").rename(apptainer)
    for python in [*programs.glob("python3"), *programs.glob("python3.[0-9]*")]:
        python.rename(python.with_name(f"away-{python.name}"))
    told = doctor(cli)
    told.failed("python", "no python3", "podrunner.python", "3.6")
    told.only("python")
    assert told.verdicts()["shared-dir-on-node"] == {"ok"}
    assert told.verdicts()["apptainer"] == {"skip"}
