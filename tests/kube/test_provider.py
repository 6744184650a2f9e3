"""vk-provider on a real Kubernetes control plane, with a sidecar in memory behind it.

What Slurm does is decided here, so each state of a pod can be held as long as a test needs it.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.sidecar import FakeJob, FakeSidecar

pytestmark = pytest.mark.kube

ROOT = Path(__file__).parents[2]
KUBE_LAB = ROOT / "scripts" / "kube-lab"
SECONDS = 60.0


# For a lab beside the usual one: KUBE_LAB_OPTIONS="--name other --port-base 17400".
OPTIONS = shlex.split(os.environ.get("KUBE_LAB_OPTIONS", ""))


def lab(command: str, *arguments: str) -> str:
    return subprocess.run(
        [KUBE_LAB, command, *OPTIONS, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def until(found: Callable[[], Any], what: Callable[[], str] = lambda: "it never came true") -> Any:
    deadline = time.monotonic() + SECONDS
    while not (answer := found()):
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)
    return answer


@dataclass
class Bench:
    """One provider with its node, and kubectl."""

    node: str
    namespace: str
    sidecar: FakeSidecar
    directory: Path
    admin: str
    kubectl_program: str
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = Path(sys.executable).parent / "vk-provider"
        command = [str(program), "--config", str(self.directory / "config.yaml")]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--poll", "0.2", "--ping", "1"], stderr=log)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        code = self.process.wait(30)
        self.process = None
        return code

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-6000:]

    def command(self, *arguments: str) -> list[str]:
        return [self.kubectl_program, "--kubeconfig", self.admin, "-n", self.namespace, *arguments]

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, input=text, timeout=SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.log()
        return done.stdout

    def get(self, kind: str, name: str) -> Any:
        printed = self.kubectl("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(printed) if printed.strip() else None

    def until_phase(self, name: str, phase: str) -> Any:
        def there() -> Any:
            found = self.get("pod", name)
            return found if found and found["status"]["phase"] == phase else None

        return until(there, self.log)

    def until_gone(self, name: str) -> None:
        until(lambda: self.get("pod", name) is None, self.log)

    def apply(self, *documents: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(documents))

    def pod(self, **spec: Any) -> str:
        """Make a pod for the node; answers its name."""
        name = f"p-{uuid.uuid4().hex[:8]}"
        base = {
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": self.node},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "busybox"}],
        }
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**base, **spec}})
        return name

    def job(self, name: str) -> FakeJob:
        def there() -> bool:
            return any(job.pod["metadata"]["name"] == name for job in list(self.sidecar.jobs.values()))

        until(there, self.log)
        return self.sidecar.job(name)

    def running(self, name: str) -> FakeJob:
        job = self.job(name)
        self.sidecar.start(job)
        self.until_phase(name, "Running")
        return job

    def payload(self, name: str) -> Any:
        return next(c for c in self.sidecar.created if c["pod"]["metadata"]["name"] == name)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    lab("up")
    env = dict(word.split("=", 1) for word in shlex.split(lab("env")))
    directory = tmp_path_factory.mktemp("provider")
    node = f"vk-{uuid.uuid4().hex[:8]}"
    kubeconfig = lab("kubeconfig", "--as", f"node:{node}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plugin = Path("/tmp") / f"{node}.sock"
    with FakeSidecar(plugin) as sidecar:
        made = Bench(node, node, sidecar, directory, env["KUBECONFIG"], env["KUBE_LAB_KUBECTL"])
        config = {
            "listen": {"plugin": sidecar.listen},
            "state_dir": str(directory),
            "node": {"name": node, "kubeconfig": kubeconfig, "kubelet_port": port},
        }
        (directory / "config.yaml").write_text(yaml.safe_dump(config))
        made.kubectl("create", "namespace", node)
        until(lambda: made.get("serviceaccount", "default") and made.get("configmap", "kube-root-ca.crt"))
        made.start()
        yield made
        made.kubectl("delete", "pods", "--all", "--wait=true", "--timeout=50s")
        if made.process is not None:
            assert made.end() == 0, made.log()
        made.kubectl("delete", "namespace", node, "--wait=false")
        made.kubectl("delete", "node", node)
    plugin.unlink(missing_ok=True)


def ready(node: Any) -> Any:
    return next(
        (c for c in (node or {}).get("status", {}).get("conditions", ()) if c["type"] == "Ready"), None
    )


@pytest.fixture(autouse=True)
def node_is_ready(bench: Bench) -> None:
    def there() -> bool:
        return bool((ready(bench.get("node", bench.node)) or {}).get("status") == "True")

    until(there, bench.log)


def approve(bench: Bench) -> None:
    """What the site's administrator does once."""

    def requests() -> list[str]:
        found = json.loads(bench.kubectl("get", "csr", "-o", "json"))["items"]
        return [each["metadata"]["name"] for each in found if bench.node in each["metadata"]["name"]]

    for name in until(requests, bench.log):
        bench.kubectl("certificate", "approve", name)
    until(lambda: "serving certificate signed" in bench.log(), bench.log)


@pytest.fixture(scope="module")
def kubelet_certificate(bench: Bench) -> None:
    approve(bench)


def test_the_node_offers_what_the_sidecar_has(bench: Bench) -> None:
    node = bench.get("node", bench.node)
    capacity = node["status"]["capacity"]
    assert (capacity["cpu"], capacity["nvidia.com/gpu"]) == ("64", "8")
    assert "ephemeral-storage" in node["status"]["allocatable"]
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == bench.node
    until(
        lambda: (
            [t["key"] for t in bench.get("node", bench.node)["spec"]["taints"]]
            == ["virtual-node.interlink/no-schedule"]
        ),
        bench.log,
    )
    lease = json.loads(bench.kubectl("get", "lease", bench.node, "-n", "kube-node-lease", "-o", "json"))
    assert lease["spec"]["holderIdentity"] == bench.node


def test_a_pod_runs_and_succeeds(bench: Bench) -> None:
    limits = {"nvidia.com/gpu": 2, "cpu": "500m", "memory": "64Mi", "ephemeral-storage": "1Gi"}
    name = bench.pod(
        initContainers=[{"name": "i", "image": "busybox"}],
        containers=[{"name": "c", "image": "busybox", "resources": {"limits": limits}}],
    )
    job = bench.job(name)
    printed = until(lambda: (t := bench.kubectl("get", "pod", name)) and "Init:0/1" in t and t, bench.log)
    assert "0/1" in printed
    bench.running(name)
    bench.sidecar.end(job)
    found = bench.until_phase(name, "Succeeded")
    assert found["metadata"]["annotations"]["JobID"] == str(job.number)
    described = bench.kubectl("describe", "pod", name)
    assert f"Slurm job {job.number} is queued: Resources" in described
    bench.kubectl("delete", "pod", name, "--timeout=30s")


def test_a_failing_pod_keeps_its_exit_code(bench: Bench) -> None:
    name = bench.pod()
    job = bench.running(name)
    bench.sidecar.end(job, 3)
    found = bench.until_phase(name, "Failed")
    assert found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_configmap_secret_and_projected_data_arrive(bench: Bench) -> None:
    hostile = "a'b\"c$(d)`e`\n$$ü"
    bench.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"k": hostile}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sec"}, "stringData": {"pw": hostile}},
    )
    files = {"sources": [{"downwardAPI": {"items": [_label_file()]}}, {"secret": {"name": "sec"}}]}
    name = bench.pod(
        containers=[
            {
                "name": "c",
                "image": "busybox",
                "env": [
                    {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "pw"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "NO", "valueFrom": {"secretKeyRef": _optional("never")}},
                ],
                "envFrom": [{"configMapRef": {"name": "cm"}, "prefix": "CM_"}],
                "volumeMounts": [{"name": "cm", "mountPath": "/cm"}, {"name": "all", "mountPath": "/all"}],
            }
        ],
        volumes=[{"name": "cm", "configMap": {"name": "cm"}}, {"name": "all", "projected": files}],
    )
    bench.job(name)
    sent = bench.payload(name)
    container = sent["pod"]["spec"]["containers"][0]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["PW"] == env["CM_k"] == hostile.replace("$", "$$")
    assert env["NODE"] == bench.node
    assert env["KUBERNETES_SERVICE_PORT"] == "443"
    assert "NO" not in env
    data = sent["container"][0]
    assert [m["data"]["k"] for m in data["configMaps"]] == [hostile]
    projected = {m["metadata"]["name"]: m["data"] for m in data["projectedvolumemaps"]}
    assert projected["all"] == {"labels": "", "pw": hostile}
    access = next(files for volume, files in projected.items() if volume.startswith("kube-api-access-"))
    assert access["namespace"] == bench.namespace
    assert "BEGIN CERTIFICATE" in access["ca.crt"]
    claims = json.loads(base64.urlsafe_b64decode(access["token"].split(".")[1] + "=="))
    assert claims["kubernetes.io"]["pod"]["name"] == name
    assert access["token"] not in bench.log()
    assert hostile not in bench.log()


def _label_file() -> dict[str, Any]:
    return {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}


def _optional(name: str) -> dict[str, Any]:
    return {"name": name, "key": "k", "optional": True}


def test_a_missing_configmap_holds_the_pod_back(bench: Bench) -> None:
    name = bench.pod(
        containers=[{"name": "c", "image": "busybox", "envFrom": [{"configMapRef": {"name": "late"}}]}]
    )
    until(lambda: "CreateContainerConfigError" in bench.kubectl("get", "pod", name), bench.log)
    assert 'configmap "late" not found' in bench.kubectl("describe", "pod", name)
    bench.kubectl("create", "configmap", "late", "--from-literal=a=1")
    bench.job(name)


@pytest.mark.usefixtures("kubelet_certificate")
def test_logs_through_the_api_server(bench: Bench) -> None:
    name = bench.pod()
    job = bench.running(name)
    assert bench.kubectl("logs", name) == ""
    bench.sidecar.write(job, "c", "one\ntwo\nthree\n")
    assert bench.kubectl("logs", name, "--tail=2") == "two\nthree\n"
    assert bench.kubectl("logs", name, "--limit-bytes=5") == "one\nt"
    assert bench.kubectl("logs", name, "--tail=0") == ""
    assert "Z one\n" in bench.kubectl("logs", name, "--timestamps", "--since=1h")
    follow = subprocess.Popen(bench.command("logs", "-f", name), stdout=subprocess.PIPE, text=True)
    assert follow.stdout is not None
    assert [follow.stdout.readline() for _ in range(3)] == ["one\n", "two\n", "three\n"]
    bench.sidecar.write(job, "c", "four\n")
    assert follow.stdout.readline() == "four\n"
    bench.sidecar.end(job)
    assert follow.stdout.read() == ""
    assert follow.wait(30) == 0
    bench.until_phase(name, "Succeeded")
    assert bench.kubectl("logs", name) == "one\ntwo\nthree\nfour\n"


@pytest.mark.usefixtures("kubelet_certificate")
def test_a_reader_of_a_log_that_leaves_is_noticed(bench: Bench) -> None:
    name = bench.pod()
    bench.running(name)
    follow = subprocess.Popen(bench.command("logs", "-f", name), stdout=subprocess.DEVNULL)
    until(lambda: bench.sidecar.followers == 1, bench.log)
    follow.terminate()
    follow.wait(30)
    until(lambda: bench.sidecar.followers == 0, bench.log)


@pytest.mark.usefixtures("kubelet_certificate")
def test_the_nodes_own_paths_through_the_proxy(bench: Bench) -> None:
    proxied = f"/api/v1/nodes/{bench.node}/proxy"
    assert bench.kubectl("get", "--raw", f"{proxied}/healthz") == "ok"
    listed = json.loads(bench.kubectl("get", "--raw", f"{proxied}/pods"))
    assert all(item["spec"]["nodeName"] == bench.node for item in listed["items"])


def test_delete_of_a_running_pod_waits_for_its_job(bench: Bench) -> None:
    name = bench.pod(terminationGracePeriodSeconds=9)
    job = bench.running(name)
    bench.sidecar.hold = True
    try:
        bench.kubectl("delete", "pod", name, "--wait=false")
        until(lambda: job.deleting, bench.log)
        sent = next(d for d in bench.sidecar.deleted if d["metadata"]["name"] == name)
        assert sent["metadata"]["deletionGracePeriodSeconds"] == 9
        seen = len(bench.sidecar.polls)
        until(lambda: len(bench.sidecar.polls) > seen + 3, bench.log)
        assert bench.get("pod", name) is not None
    finally:
        bench.sidecar.hold = False
    bench.sidecar.end(job, 143)
    bench.until_gone(name)


def test_delete_while_pending_and_by_force(bench: Bench) -> None:
    pending, forced = bench.pod(), bench.pod()
    waits, runs = bench.job(pending), bench.running(forced)
    bench.kubectl("delete", "pod", pending, "--timeout=30s")
    bench.kubectl("delete", "pod", forced, "--force", "--grace-period=0")
    until(lambda: waits.deleting and runs.deleting, bench.log)


def test_killed_and_started_again_while_pods_run(bench: Bench) -> None:
    stays, ends, goes = bench.pod(), bench.pod(), bench.pod()
    jobs = [bench.running(name) for name in (stays, ends, goes)]
    before = len(bench.sidecar.created)
    bench.end(signal.SIGKILL)
    bench.sidecar.end(jobs[1], 0)
    bench.kubectl("delete", "pod", goes, "--wait=false")
    bench.start()
    bench.until_phase(ends, "Succeeded")
    bench.until_gone(goes)
    assert bench.get("pod", stays)["status"]["phase"] == "Running"
    assert len(bench.sidecar.created) == before, "nothing was created twice"


def test_a_refusal_is_in_the_pods_status(bench: Bench) -> None:
    bench.sidecar.refuse = "nobody may run pods of this namespace"
    try:
        name = bench.pod()
        found = bench.until_phase(name, "Failed")
    finally:
        bench.sidecar.refuse = None
    assert found["status"]["message"] == "nobody may run pods of this namespace"
    assert "ProviderCreateFailed" in bench.kubectl("describe", "pod", name)


def test_a_job_with_three_completions(bench: Bench) -> None:
    bench.sidecar.on_create = lambda job: bench.sidecar.end(job)
    name = f"j-{uuid.uuid4().hex[:8]}"
    template = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": bench.node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "busybox"}],
    }
    spec = {"completions": 3, "parallelism": 2, "template": {"spec": template}}
    try:
        bench.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
        until(lambda: bench.get("job", name)["status"].get("succeeded") == 3, bench.log)
    finally:
        bench.sidecar.on_create = lambda job: None
    bench.kubectl("delete", "job", name, "--timeout=30s")


def test_the_node_stays_ready_while_slurm_is_away(bench: Bench) -> None:
    bench.sidecar.slurm_connected = False
    try:
        until(lambda: ready(bench.get("node", bench.node))["reason"] == "SlurmUnreachable", bench.log)
        assert ready(bench.get("node", bench.node))["status"] == "True"
    finally:
        bench.sidecar.slurm_connected = True


@pytest.mark.disruptive
def test_an_api_server_that_goes_and_comes_back(bench: Bench) -> None:
    stays, ends = bench.pod(), bench.pod()
    jobs = [bench.running(name) for name in (stays, ends)]
    before = len(bench.sidecar.created)
    lab("stop", "kube-apiserver")
    bench.sidecar.end(jobs[1], 4)
    until(lambda: "watch of pods interrupted" in bench.log(), bench.log)
    lab("start", "kube-apiserver")
    found = bench.until_phase(ends, "Failed")
    assert found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert bench.get("pod", stays)["status"]["phase"] == "Running"
    new = bench.pod()
    bench.running(new)
    assert len(bench.sidecar.created) == before + 1


def test_a_node_that_was_deleted_comes_back(bench: Bench) -> None:
    first = bench.get("node", bench.node)["metadata"]["uid"]
    bench.sidecar.resources["cpu"] = "63"
    bench.kubectl("delete", "node", bench.node)
    until(lambda: (bench.get("node", bench.node) or {}).get("metadata", {}).get("uid", first) != first)
    until(lambda: (ready(bench.get("node", bench.node)) or {}).get("status") == "True", bench.log)
