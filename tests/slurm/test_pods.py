"""The main job: pods become GPU jobs, run, and come back with logs, ends and accounts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import Cli, Lab, container

pytestmark = pytest.mark.slurm
Pods = Callable[..., dict[str, Any]]


def test_a_gpu_pod_from_manifest_to_account(cli: Cli, pod: Pods, lab: Lab) -> None:
    script = "echo /dev/nvidia[0-9] $CUDA_VISIBLE_DEVICES; sleep 2"
    done = cli.run(
        pod(
            gpus=1,
            left=script,
            right=script,
            spec={"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
        )
    )
    assert done.code == 0, done.err
    document = done.json()
    assert document["phase"] == "Succeeded"
    assert document["exitCode"] == 0
    job, usage = document["job"], document["usage"]
    assert job["user"] == "alice"
    assert job["account"] == "physics"
    assert job["node"] in ("n1", "n2")
    assert len(job["gpus"]) == 2
    # Each container has one GPU of the job's own, sees no other, and they differ.
    taken = {name: container(document, name)["gpus"] for name in ("left", "right")}
    assert sorted(gpu for gpus in taken.values() for gpu in gpus) == job["gpus"]
    for name, (gpu,) in taken.items():
        assert cli("logs", document["uid"], "-c", name).out == f"/dev/nvidia{gpu} 0\n"
    assert usage["source"] == "slurmdbd"
    assert usage["gpus"] == 2
    assert usage["gpu_seconds"] == 2 * usage["elapsed_seconds"] > 0
    listed = lab.exec("sacct", "-X", "-n", "-P", "-j", str(job["id"]), "-o", "JobName,State,AllocTRES%80")
    name, state, tres = listed.strip().split("|")
    assert name == job["name"]
    assert name.startswith("test-")
    assert state == "COMPLETED"
    assert "gres/gpu:a100=2" in tres


def test_init_containers_run_first_and_in_order(cli: Cli, pod: Pods) -> None:
    made = pod(main="date +%s; echo main")
    first, second = pod(one="sleep 1; date +%s; sleep 1", two="date +%s; sleep 1")["spec"]["containers"]
    made["spec"]["initContainers"] = [first, second]
    document = cli.run(made).json()
    assert document["phase"] == "Succeeded"
    times = [int(cli("logs", document["uid"], "-c", name).out.split()[0]) for name in ("one", "two", "main")]
    assert times == sorted(set(times))


def test_a_failing_init_container_stops_the_pod(cli: Cli, pod: Pods) -> None:
    made = pod(main="echo never")
    made["spec"]["initContainers"] = pod(first="exit 4", second="echo never")["spec"]["containers"]
    done = cli.run(made)
    document = done.json()
    assert done.code == 4
    assert document["phase"] == "Failed"
    assert container(document, "first")["exitCode"] == 4
    for name in ("second", "main"):
        assert container(document, name)["state"] == "waiting"
        assert container(document, name)["reason"] == "PodInitializing"
        assert cli("logs", document["uid"], "-c", name).out == ""


def test_one_container_fails_and_the_others_run_on(cli: Cli, pod: Pods) -> None:
    done = cli.run(pod(good="sleep 2; echo still here", bad="exit 3", worse="exit 5"))
    document = done.json()
    assert done.code == 3
    assert (document["phase"], document["exitCode"]) == ("Failed", 3)
    assert container(document, "bad")["reason"] == "Error"
    assert container(document, "good")["reason"] == "Completed"
    assert cli("logs", document["uid"], "-c", "good").out == "still here\n"
    for part in (str(document["job"]["id"]), "FAILED", "NonZeroExitCode", "exit code 3"):
        assert part in document["message"]


def test_killed_by_a_signal(cli: Cli, pod: Pods) -> None:
    document = cli.run(pod(main="kill -KILL $$$$", other="exit 0")).json()
    assert container(document, "main")["exitCode"] == 137
    assert container(document, "main")["reason"] == "Error"


def test_command_not_found_and_not_executable(cli: Cli, pod: Pods) -> None:
    document = cli.run(pod(a={"command": ["no-such-program"]}, b={"command": ["/etc/passwd"]})).json()
    assert (container(document, "a")["reason"], container(document, "a")["exitCode"]) == (
        "ContainerCannotRun",
        127,
    )
    assert "no-such-program" in container(document, "a")["message"]
    assert (container(document, "b")["reason"], container(document, "b")["exitCode"]) == (
        "ContainerCannotRun",
        126,
    )
    assert document["exitCode"] == 127


def test_a_missing_image(cli: Cli, pod: Pods, lab: Lab) -> None:
    done = cli.run(pod(main={"image": f"{lab.registry}/lab/none:9", "command": ["true"]}))
    document = done.json()
    assert done.code == 125
    assert document["phase"] == "Failed"
    assert container(document, "main")["reason"] == "ErrImagePull"
    assert "none" in container(document, "main")["message"]


def test_a_local_image(cli: Cli, pod: Pods) -> None:
    done = cli.run(pod(main={"image": "/shared/images/busybox.sif", "command": ["echo", "from a file"]}))
    assert done.code == 0, done.out
    assert "from a file" in done.err  # with JSON asked for, logs go to standard error


def test_the_pods_own_deadline(cli: Cli, pod: Pods) -> None:
    made = pod(main="trap 'echo got TERM; exit 0' TERM; echo up; while :; do sleep 0.2; done")
    made["spec"]["activeDeadlineSeconds"] = 3
    done = cli.run(made)
    document = done.json()
    assert (document["phase"], document["reason"]) == ("Failed", "DeadlineExceeded")
    assert done.code != 0
    assert cli("logs", document["uid"]).out == "up\ngot TERM\n"


def test_slurms_time_limit(cli: Cli, pod: Pods) -> None:
    limited = cli.configure(defaults={"time_limit": "1m"})
    done = limited.run(pod(main="trap 'echo got TERM; exit 7' TERM; while :; do sleep 0.2; done"))
    document = done.json()
    assert (document["phase"], document["reason"]) == ("Failed", "DeadlineExceeded")
    assert document["job"]["state"] == ["TIMEOUT"]
    # The root file system outlived Slurm's TERM to all processes: the trap ran to its end.
    assert container(document, "main")["exitCode"] == 7
    assert "TimeLimit" in document["message"]


@pytest.mark.parametrize("by", ["alice", None])
def test_cancelled_by_its_owner_and_by_an_admin(cli: Cli, pod: Pods, lab: Lab, by: str | None) -> None:
    submitted = cli.detach(pod(main="while :; do sleep 0.2; done"))
    cli.until(submitted["uid"], lambda d: d["phase"] == "Running")
    lab.exec("scancel", str(submitted["job"]["id"]), user=by)
    document = cli.until(submitted["uid"], lambda d: bool(d["usage"]))
    assert (document["phase"], document["reason"]) == ("Failed", "SlurmJobCancelled")
    assert container(document, "main")["reason"] == "Error"
    assert container(document, "main")["exitCode"] in (143, 137)
    assert f"by user {by or 'root'}" in document["message"]


def test_cancelled_while_queued(cli: Cli, pod: Pods, lab: Lab) -> None:
    made = pod(main="true", spec={"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"}}, gpus=2)
    blocker = cli.detach(
        pod(main="sleep 100", spec={"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"}}, gpus=2)
    )
    cli.until(blocker["uid"], lambda d: d["phase"] == "Running")
    waiting = cli.detach(made)
    document = cli.until(waiting["uid"], lambda d: bool(d["job"]["reason"]) and d["job"]["reason"] != "None")
    assert document["phase"] == "Pending"
    assert container(document, "main")["state"] == "waiting"
    assert document["job"]["reason"] in container(document, "main")["message"]
    lab.exec("scancel", str(waiting["job"]["id"]))
    document = cli.until(waiting["uid"], lambda d: bool(d["usage"]))
    assert (document["phase"], document["reason"]) == ("Failed", "SlurmJobCancelled")
    assert document["exitCode"] == 137
    # Deleting what is queued cancels it; deleting what has ended changes nothing.
    queued = cli.detach(made)
    for _ in range(2):
        assert cli("delete", queued["uid"]).code == 0
    assert cli.status(queued["uid"])["job"]["standing"] == "done"


def test_delete_gives_the_grace_period(cli: Cli, pod: Pods, lab: Lab) -> None:
    mark = f"mark{time.time_ns()}"
    made = pod(
        polite=f": {mark}; trap 'sleep 1; echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done",
        stubborn=f": {mark}; trap '' TERM; echo up; while :; do sleep 0.1; done",
    )
    submitted = cli.detach(made)
    uid = submitted["uid"]
    cli.until(uid, lambda d: all("up" in cli("logs", uid, "-c", c).out for c in ("polite", "stubborn")))
    done = cli("delete", uid, "--output", "json")
    assert done.code == 0, done.err
    document = cli.until(uid, lambda d: bool(d["usage"]))
    assert cli("logs", uid, "-c", "polite").out == "up\nbye\n"
    assert container(document, "polite")["exitCode"] == 0
    assert container(document, "stubborn")["exitCode"] == 137
    assert "deletion" in document["message"]
    left = lab.exec("pgrep", "-u", "alice", "-f", mark, code=None).split()
    assert not left


def test_create_twice_is_one_job(cli: Cli, pod: Pods) -> None:
    made = pod(main="echo once")
    made["metadata"]["uid"] = "5f0c1f0e-0000-4000-8000-" + f"{time.time_ns() % 10**12:012d}"
    first, second = cli.detach(made), cli.detach(made)
    assert first["job"]["id"] == second["job"]["id"]


def test_logs_follow_and_tail(cli: Cli, pod: Pods) -> None:
    submitted = cli.detach(pod(main="for i in 1 2 3 4; do echo line $i; sleep 0.5; done"))
    followed = cli("logs", "-f", submitted["uid"])
    assert followed.code == 0
    assert followed.out == "line 1\nline 2\nline 3\nline 4\n"
    assert cli("logs", "--tail", "2", submitted["uid"]).out == "line 3\nline 4\n"
    stamped = cli("logs", "--timestamps", "--tail", "1", str(submitted["job"]["id"])).out
    assert stamped.split(" ", 1)[1] == "line 4\n"


def test_two_namespaces_are_two_users(cli: Cli, pod: Pods) -> None:
    alice = cli.run(pod(main="id -u", namespace="physics"))
    bob = cli.run(pod(main="id -u", namespace="ai"))
    assert cli("logs", alice.json()["uid"]).out == "2001\n"
    assert cli("logs", bob.json()["uid"]).out == "2002\n"
    assert bob.json()["job"]["account"] == "ai"


def test_the_job_script_is_the_same_bytes_and_holds_nothing_of_the_pod(cli: Cli, pod: Pods, lab: Lab) -> None:
    secret = "hunter2-f3a1"
    first = pod(
        name="first",
        main={"command": ["sh", "-c", f"echo {secret}"], "env": [{"name": "PASSWORD", "value": secret}]},
    )
    scripts = []
    for made in (first, pod(name="second", namespace="ai", main="sleep 1", other="true", gpus=1)):
        submitted = cli.detach(made)
        job = str(submitted["job"]["id"])
        scripts.append(lab.exec("scontrol", "write", "batch_script", job, "-"))
        shown = lab.exec("scontrol", "show", "job", job, user="carol") + lab.exec(
            "scontrol", "show", "job", job
        )
        # Neither the secret nor the directory that holds the plan is in a field others can see.
        assert secret not in shown
        assert "/shared/pods" not in shown
    assert scripts[0] == scripts[1]
    assert secret not in scripts[0]


def test_the_plan_is_its_owners_alone(cli: Cli, pod: Pods, lab: Lab) -> None:
    done = cli.run(pod(main="echo hello"))
    assert done.code == 0
    listing = lab.exec("sh", "-c", "stat -c '%a %U %n' /shared/pods; ls -ln /shared/pods | tail -n 1")
    assert listing.startswith("711 root")
    assert lab.exec("ls", "/shared/pods", user="bob", code=2) == ""


def test_the_runner_is_installed_on_the_nodes(cli: Cli, pod: Pods, lab: Lab) -> None:
    name = f"podrunner-{time.time_ns()}"
    file = Path(lab.env["LAB_SHARED"]) / name
    installed = cli.configure(podrunner={"path": f"/shared/{name}"})
    file.write_text(installed("podrunner").out)
    file.chmod(0o644)
    try:
        done = installed.run(pod(main="echo up; exit 3"))
        assert done.code == 3, done.err
        document = done.json()
        assert container(document, "main")["exitCode"] == 3
        assert installed("logs", document["uid"]).out == "up\n"
        script = lab.exec("scontrol", "write", "batch_script", str(document["job"]["id"]), "-")
        assert len(script) < 4000
        # Another release's, or none: no pod starts, and it says why.
        file.write_text("another")
        for word in ("install it anew", "is not there on this node"):
            document = installed.run(pod(main="true")).json()
            assert document["phase"] == "Failed"
            assert word in document["message"], document
            file.unlink(missing_ok=True)
    finally:
        file.unlink(missing_ok=True)
