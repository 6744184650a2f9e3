"""`kubectl apply` of pods that run as Slurm jobs."""

from __future__ import annotations

import base64
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kube.conftest import Cluster

pytestmark = pytest.mark.kube
Pods = Callable[..., dict[str, Any]]
TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"


def name_of(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def phase(wanted: str) -> Callable[[dict[str, Any]], bool]:
    return lambda pod: pod["status"].get("phase") == wanted


def state(pod: dict[str, Any], container: str) -> dict[str, Any]:
    both = [*pod["status"].get("initContainerStatuses", ()), *pod["status"].get("containerStatuses", ())]
    return next((dict(one["state"]) for one in both if one["name"] == container), {})


def running(container: str) -> Callable[[dict[str, Any]], bool]:
    return lambda pod: "running" in state(pod, container)


def test_the_node_offers_what_slurm_has(cluster: Cluster) -> None:
    node = cluster.get("node", cluster.node)
    assert node is not None
    capacity = node["status"]["capacity"]
    seen = cluster.slurm.exec("scontrol", "show", "nodes", "--oneliner")
    assert int(capacity["cpu"]) == sum(map(int, re.findall(r"CPUTot=(\d+)", seen)))
    memory = sum(map(int, re.findall(r"RealMemory=(\d+)", seen)))
    assert capacity["memory"] == f"{memory}Mi"
    assert int(capacity["nvidia.com/gpu"]) == sum(map(int, re.findall(r"gres/gpu=(\d+)", seen)))
    assert "ephemeral-storage" in capacity
    labels = node["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == cluster.node
    # kubernetes.io/role is not for a node identity to set (NodeRestriction refuses it).
    assert labels["type"] == "virtual-kubelet"
    assert any(t["key"] == "virtual-node.interlink/no-schedule" for t in node["spec"]["taints"])
    lease = cluster.get("lease", cluster.node, "kube-node-lease")
    assert lease is not None


def test_a_gpu_pod_runs_and_succeeds(cluster: Cluster, pod: Pods) -> None:
    made = pod(
        gpus=1,
        left="echo /dev/nvidia[0-9]; sleep 8",
        right="echo /dev/nvidia[0-9]; sleep 8",
    )
    cluster.apply(made)
    name = name_of(made)
    cluster.until(name, running("left"))
    # Of all states: the job may be over by the time its pod is seen running.
    queue = cluster.slurm.exec("squeue", "-h", "-t", "all", "-o", "%j %u %b")
    assert re.search(rf"^{name}-[0-9a-f]{{12}} alice gres/gpu:2$", queue, re.MULTILINE), queue
    done = cluster.until(name, phase("Succeeded"))
    assert state(done, "left")["terminated"]["reason"] == "Completed"
    logs = {c: cluster.kubectl("logs", "-n", "physics", name, "-c", c) for c in ("left", "right")}
    assert all(re.fullmatch(r"/dev/nvidia\d\n", log) for log in logs.values()), logs
    assert logs["left"] != logs["right"]
    assert cluster.kubectl("logs", "-n", "physics", name, "-c", "left", old=True) == logs["left"]


def test_a_failing_pod_has_its_exit_code(cluster: Cluster, pod: Pods) -> None:
    made = pod(main="echo oh no; exit 3", other="true")
    cluster.apply(made)
    done = cluster.until(name_of(made), phase("Failed"))
    ended = state(done, "main")["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert state(done, "other")["terminated"]["exitCode"] == 0
    assert "NonZeroExitCode" in done["status"]["message"]


def test_config_map_volume_and_secret_variable(cluster: Cluster, pod: Pods) -> None:
    made = pod(
        main={
            "command": [
                "sh",
                "-c",
                f"cat /etc/conf/a.txt /etc/conf/deep/b; echo $$PASSWORD; ls {TOKEN_DIRECTORY}",
            ],
            "env": [
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}}
            ],
            "volumeMounts": [{"name": "conf", "mountPath": "/etc/conf"}],
        },
        spec={
            "volumes": [
                {
                    "name": "conf",
                    "configMap": {
                        "name": "settings",
                        "items": [{"key": "a", "path": "a.txt"}, {"key": "b", "path": "deep/b"}],
                    },
                }
            ]
        },
    )
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "physics"},
        "data": {"a": "it's $(A) `b`\n"},
        "binaryData": {"b": base64.b64encode(b"binary\n").decode()},
    }
    login = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login", "namespace": "physics"},
        "stringData": {"password": "hun$(A)ter2"},
    }
    cluster.apply(settings, login, made)
    cluster.until(name_of(made), phase("Succeeded"))
    printed = cluster.kubectl("logs", "-n", "physics", name_of(made))
    assert printed.splitlines() == ["it's $(A) `b`", "binary", "hun$(A)ter2", "ca.crt", "namespace", "token"]


def test_a_missing_config_map_is_waited_for(cluster: Cluster, pod: Pods) -> None:
    late = f"late-{time.time_ns()}"
    made = pod(
        main={
            "command": ["sh", "-c", "echo $LATE"],
            "env": [{"name": "LATE", "valueFrom": {"configMapKeyRef": {"name": late, "key": "k"}}}],
        }
    )
    cluster.apply(made)
    waiting = cluster.until(name_of(made), lambda p: "waiting" in state(p, "main"))
    assert waiting["status"]["phase"] == "Pending"
    assert state(waiting, "main")["waiting"]["reason"] == "CreateContainerConfigError"
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": late, "namespace": "physics"},
            "data": {"k": "here"},
        }
    )
    cluster.until(name_of(made), phase("Succeeded"))
    assert cluster.kubectl("logs", "-n", "physics", name_of(made)) == "here\n"


def test_init_container(cluster: Cluster, pod: Pods) -> None:
    made = pod(main="cat /work/made")
    made["spec"]["volumes"] = [{"name": "work", "emptyDir": {}}]
    mount = [{"name": "work", "mountPath": "/work"}]
    made["spec"]["containers"][0]["volumeMounts"] = mount
    (init,) = pod(first={"command": ["sh", "-c", "echo prepared > /work/made"], "volumeMounts": mount})[
        "spec"
    ]["containers"]
    made["spec"]["initContainers"] = [init]
    cluster.apply(made)
    done = cluster.until(name_of(made), phase("Succeeded"))
    assert state(done, "first")["terminated"]["exitCode"] == 0
    assert cluster.kubectl("logs", "-n", "physics", name_of(made)) == "prepared\n"


def test_logs_follow(cluster: Cluster, pod: Pods) -> None:
    made = pod(main="for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 1; done")
    cluster.apply(made)
    cluster.until(name_of(made), running("main"))
    followed = cluster.kubectl("logs", "-f", "-n", "physics", name_of(made))
    assert followed == "".join(f"line {number}\n" for number in range(1, 9))
    assert cluster.kubectl("logs", "--tail=1", "-n", "physics", name_of(made)) == "line 8\n"


def test_delete_pending_running_and_finished(cluster: Cluster, pod: Pods) -> None:
    blocker = cluster.slurm.exec(
        "sbatch", "--parsable", "-p", "all", "-w", "n1,n2,n3", "-N", "3", "--exclusive", "-o", "/dev/null",
        "-A", "physics", "--wrap", "sleep 300", user="alice",
    ).strip()  # fmt: skip
    try:
        pending = pod(gpus=1, main="true")
        cluster.apply(pending)
        waiting = cluster.until(
            name_of(pending), lambda p: "queued" in state(p, "main").get("waiting", {}).get("message", "")
        )
        assert waiting["status"]["phase"] == "Pending"
        cluster.kubectl("delete", "pod", "-n", "physics", name_of(pending), "--timeout=60s")
        assert name_of(pending) not in cluster.slurm.exec("squeue", "-h", "-o", "%j")
    finally:
        cluster.slurm.exec("scancel", blocker)
    made = pod(main="trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done")
    cluster.apply(made)
    cluster.until(name_of(made), running("main"))
    cluster.kubectl("delete", "pod", "-n", "physics", name_of(made), "--timeout=60s")
    assert name_of(made) not in cluster.slurm.exec("squeue", "-h", "-t", "R,PD", "-o", "%j")
    finished = pod(main="true")
    cluster.apply(finished)
    cluster.until(name_of(finished), phase("Succeeded"))
    cluster.kubectl("delete", "pod", "-n", "physics", name_of(finished), "--timeout=60s")
    assert cluster.get("pod", name_of(finished)) is None


def test_a_job_with_three_completions(cluster: Cluster, pod: Pods) -> None:
    template = pod(main="echo done")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name_of(template), "namespace": "physics"},
        "spec": {"completions": 3, "parallelism": 2, "template": {"spec": template["spec"]}},
    }
    cluster.apply(job)
    done = cluster.until(
        name_of(template), lambda j: j["status"].get("succeeded") == 3, kind="job", seconds=120
    )
    assert any(c["type"] == "Complete" for c in done["status"]["conditions"])


def test_the_provider_killed_and_started_again(cluster: Cluster, pod: Pods) -> None:
    made = pod(main="sleep 6; exit 4")
    cluster.apply(made)
    before = cluster.until(name_of(made), running("main"))
    for daemon in ("vk-provider", "serve"):
        cluster.daemons[daemon].kill()
        cluster.daemons[daemon].wait()
        cluster.start(daemon)
    done = cluster.until(name_of(made), phase("Failed"))
    assert state(done, "main")["terminated"]["exitCode"] == 4
    assert done["status"]["startTime"] == before["status"]["startTime"]
    jobs = cluster.slurm.exec("sacct", "-a", "-X", "-n", "-P", "-S", "now-10minutes", "-o", "JobName%60")
    assert len([line for line in jobs.splitlines() if line.startswith(f"{name_of(made)}-")]) == 1


def test_fits_the_total_but_no_node(cluster: Cluster, pod: Pods) -> None:
    made = pod(gpus=9, main="true")
    cluster.apply(made)
    done = cluster.until(name_of(made), phase("Failed"))
    assert "Slurm refused" in done["status"]["message"]


def test_one_that_has_to_wait_says_why(cluster: Cluster, pod: Pods) -> None:
    blocker = cluster.slurm.exec(
        "sbatch", "--parsable", "-p", "all", "-w", "n1,n2,n3", "-N", "3", "--exclusive", "-o", "/dev/null",
        "-A", "physics", "--wrap", "sleep 300", user="alice",
    ).strip()  # fmt: skip
    made = pod(gpus=1, main="true")
    name = name_of(made)
    try:
        cluster.apply(made)

        def reasoned(found: dict[str, Any]) -> bool:
            message = state(found, "main").get("waiting", {}).get("message", "")
            return bool(re.search(r"Resources|Priority|ReqNodeNotAvail", message))

        waiting = cluster.until(name, reasoned)
        assert waiting["status"]["phase"] == "Pending"
        time.sleep(3)  # several looks later there must still be one event
        shown = cluster.kubectl(
            "get",
            "events",
            "-n",
            "physics",
            "--field-selector",
            f"involvedObject.name={name}",
            "-o",
            "jsonpath={.items[*].message}",
        )
        assert len(re.findall(r"Slurm job \d+ is queued", shown)) == 1, shown
    finally:
        cluster.slurm.exec("scancel", blocker)
    cluster.until(name, phase("Succeeded"))


def test_two_namespaces_are_two_users_and_strangers_are_refused(cluster: Cluster, pod: Pods) -> None:
    for namespace, uid in (("physics", "2001"), ("ai", "2002")):
        made = pod(namespace=namespace, main="id -u")
        cluster.apply(made)
        cluster.until(name_of(made), phase("Succeeded"), namespace)
        assert cluster.kubectl("logs", "-n", namespace, name_of(made)).strip() == uid
    cluster.kubectl("create", "namespace", "strangers", code=None)
    deadline = time.monotonic() + 30
    while cluster.get("serviceaccount", "default", "strangers") is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    made = pod(namespace="strangers", main="true")
    cluster.apply(made)
    done = cluster.until(name_of(made), phase("Failed"), "strangers")
    assert "strangers" in done["status"]["message"]
    cluster.kubectl("delete", "namespace", "strangers", "--wait=false")


def test_describe_tells_the_story(cluster: Cluster, pod: Pods) -> None:
    made = pod(main="exit 2")
    cluster.apply(made)
    cluster.until(name_of(made), phase("Failed"))
    shown = cluster.kubectl("describe", "pod", "-n", "physics", name_of(made))
    for words in ("Exit Code:    2", "Slurm job", "NonZeroExitCode"):
        assert words in shown


@pytest.mark.disruptive
def test_the_node_stays_ready_while_slurmrestd_is_away(cluster: Cluster) -> None:
    def ready() -> bool:
        node = cluster.get("node", cluster.node)
        assert node is not None
        return any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])

    cluster.slurm.daemon("stop", "slurmrestd")
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert ready()
            time.sleep(2)
    finally:
        cluster.slurm.daemon("start", "slurmrestd")
    assert ready()


@pytest.mark.soak
def test_ten_idle_minutes(cluster: Cluster) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        node = cluster.get("node", cluster.node)
        assert node is not None
        assert any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
        time.sleep(5)


def test_zz_serve_started_no_program(cluster: Cluster) -> None:
    """Last: over everything above, `serve` is one process (several, where a test killed it)."""
    assert isinstance(cluster.daemons["serve"], subprocess.Popen)
    lines = cluster.trace.read_text().splitlines()
    executed = [line for line in lines if re.search(r"\bexecve(at)?\(", line)]
    starts = [line for line in executed if "slurmrest-adapter" in line]
    assert executed == starts
    assert 1 <= len(starts) <= 2
    started = [line for line in lines if re.search(r"\b(v?fork|clone3?)\(", line)]
    assert started
    assert [line for line in started if "CLONE_THREAD" not in line] == []
