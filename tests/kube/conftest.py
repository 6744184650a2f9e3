"""The layer `kube`: both halves together, a real Kubernetes in front and a real Slurm behind."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.labs import ROOT, SHELL, Lab, slurm_lab

KUBE_LAB = ROOT / "scripts" / "kube-lab"
BIN = Path(sys.executable).parent
TRACED = "execve,execveat,fork,vfork,clone,clone3"


@dataclass
class Cluster:
    """The labs, `serve` and `vk-provider`, and kubectl in front of them."""

    slurm: Lab
    kube: dict[str, str]
    directory: Path
    config: Path
    trace: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def node(self) -> str:
        return self.kube["KUBE_LAB_NODE"]

    def start(self, name: str) -> None:
        """Start a daemon: ``serve`` or ``vk-provider``."""
        commands = {
            "serve": [str(BIN / "slurmrest-adapter"), "--config", str(self.config), "serve"],
            "vk-provider": [
                str(BIN / "vk-provider"),
                *("--config", str(self.config)),
                # The lab signs the kubelet API's certificate; a cluster's admin would approve the request.
                *("--cert-dir", self.kube["KUBE_LAB_KUBELET_CERTS"]),
                *("--poll", "1"),
            ],
        }
        command = commands[name]
        if name == "serve":
            strace = ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-A", "-o", str(self.trace)]
            command = [*strace, "-e", f"trace={TRACED}", *command]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURMREST_", "KUBE"))}
        with (self.directory / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")[-6000:]

    def kubectl(
        self, *arguments: str, stdin: str | None = None, code: int | None = 0, old: bool = False
    ) -> str:
        """Run kubectl as the administrator; its standard output."""
        done = self.kubectl_done(*arguments, stdin=stdin, old=old)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def kubectl_done(
        self, *arguments: str, stdin: str | None = None, old: bool = False
    ) -> subprocess.CompletedProcess[str]:
        program = self.kube["KUBE_LAB_KUBECTL_OLD" if old else "KUBE_LAB_KUBECTL"]
        return subprocess.run(
            [program, "--kubeconfig", self.kube["KUBECONFIG"], *arguments],
            capture_output=True,
            text=True,
            input=stdin,
            timeout=120,
        )

    def apply(self, *documents: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def get(self, kind: str, name: str, namespace: str = "physics") -> dict[str, Any] | None:
        """An object, None when it is not there."""
        done = self.kubectl_done("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] | None = json.loads(done.stdout) if done.stdout.strip() else None
        return found

    def until(
        self,
        name: str,
        wanted: Callable[[dict[str, Any]], bool],
        namespace: str = "physics",
        seconds: float = 60,
        kind: str = "pod",
    ) -> dict[str, Any]:
        """Ask for an object until it is as wanted."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.get(kind, name, namespace)
            if found is not None and wanted(found):
                return found
            if time.monotonic() > deadline:
                status = json.dumps((found or {}).get("status"), indent=1)
                pytest.fail(f"{status}\nserve:\n{self.log('serve')}\nvk-provider:\n{self.log('vk-provider')}")
            time.sleep(0.2)

    def until_gone(self, name: str, namespace: str = "physics", seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while self.get("pod", name, namespace) is not None:
            assert time.monotonic() < deadline, self.log("vk-provider")
            time.sleep(0.2)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Both labs and both daemons."""
    slurm = slurm_lab()
    subprocess.run([KUBE_LAB, "up"], check=True, capture_output=True)
    printed = subprocess.run([KUBE_LAB, "env"], check=True, capture_output=True, text=True).stdout
    kube = dict(word.split("=", 1) for word in shlex.split(printed))
    directory = tmp_path_factory.mktemp("cluster")
    socket = Path("/tmp") / f"sra-{uuid.uuid4().hex[:12]}.sock"
    config = slurm.config()
    config |= {
        "state_dir": str(directory / "state"),
        "listen": {"plugin": f"unix://{socket}", "allowed_uids": [0]},
        "node": {
            "name": kube["KUBE_LAB_NODE"],
            "kubeconfig": kube["KUBE_LAB_NODE_KUBECONFIG"],
            "kubelet_port": int(kube["SLURMREST_NODE__KUBELET_PORT"]),
        },
    }
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    made = Cluster(slurm, kube, directory, path, directory / "trace")
    made.start("serve")
    made.start("vk-provider")

    def ready(node: dict[str, Any]) -> bool:
        return any(
            c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ())
        )

    made.until(made.node, ready, kind="node")
    yield made
    for namespace in ("physics", "ai", "default"):
        made.kubectl(
            "delete", "jobs,pods", "--all", "-n", namespace, "--wait=true", "--timeout=60s", code=None
        )
    for daemon in made.daemons.values():
        daemon.terminate()
    for daemon in made.daemons.values():
        daemon.wait(30)
    made.kubectl("delete", "node", made.node, "--ignore-not-found")
    socket.unlink(missing_ok=True)


@pytest.fixture
def pod(cluster: Cluster) -> Callable[..., dict[str, Any]]:
    """Makes a pod for the virtual node: keyword → shell script, or a container's fields."""

    def make(
        gpus: int = 0, namespace: str = "physics", spec: dict[str, Any] | None = None, **scripts: Any
    ) -> dict[str, Any]:
        containers = []
        for name, script in scripts.items():
            given = script if isinstance(script, dict) else {"command": ["sh", "-c", script]}
            limits: dict[str, Any] = {"cpu": "1", "memory": "100Mi"}
            if gpus:
                limits["nvidia.com/gpu"] = gpus
            image = f"{cluster.slurm.registry}/{SHELL}"
            containers.append({"name": name, "image": image, "resources": {"limits": limits}, **given})
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"t-{uuid.uuid4().hex[:10]}", "namespace": namespace},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 3,
                "nodeSelector": {"kubernetes.io/hostname": cluster.node},
                "tolerations": [{"operator": "Exists"}],
                "containers": containers,
                **(spec or {}),
            },
        }

    return make
