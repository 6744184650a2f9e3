"""What the rows run on: the labs, and a virtual node of our own with its `serve` and `vk-provider`.

Every test process has a node of its own, so that several can run side by side, and two whole
suites as well. A node's number is a lock in the lab's directory; who gets it removes what a killed
run has left behind.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from tests.fidelity.api import Api
from tests.labs import ROOT, Lab, slurm_lab

KUBE_LAB = ROOT / "scripts" / "kube-lab"
BIN = Path(sys.executable).parent
BACKOFF_S = 0.5  # the kubelet's 10 would make minutes of every row on restarts
NAMESPACES = ("physics", "ai")
HOST_PATHS = ("/tmp",)  # what pods may mount of the compute nodes
_FIRST_PORT = 16460  # between the lab's own ports and those that the kernel gives away


@dataclass
class Site:
    """A virtual node and what is behind it."""

    slurm: Lab
    kube: dict[str, str]
    api: Api
    node: str
    directory: Path
    socket: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.directory / "config.yaml"

    def start(self, name: str, *command: str) -> None:
        """Start a daemon of ours."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURMREST_", "KUBE"))}
        with (self.directory / f"{name}.log").open("ab") as log:
            program = [str(BIN / command[0]), "--config", str(self.config), *command[1:]]
            self.daemons[name] = subprocess.Popen(program, stdout=log, stderr=log, env=environment)

    def story(self) -> str:
        """The last words of both daemons, for a test that failed."""
        return "\n".join(
            f"{name}:\n{(self.directory / f'{name}.log').read_text(errors='replace')[-3000:]}"
            for name in self.daemons
        )

    def pods(self) -> list[dict[str, Any]]:
        """All pods of the node."""
        found = self.api.json("GET", "/api/v1/pods", fieldSelector=f"spec.nodeName={self.node}")
        return list(found["items"])


@contextmanager
def site(directory: Path) -> Iterator[Site]:
    """A node that is Ready; pods and node are gone afterwards."""
    slurm = slurm_lab()
    _kube_lab("up")
    kube = dict(word.split("=", 1) for word in shlex.split(_kube_lab("env")))
    lock, number = _number(Path(kube["KUBECONFIG"]).parent)
    name = f"fidelity-{number}"
    socket = Path("/tmp") / f"sra-{uuid.uuid4().hex[:12]}.sock"
    made = Site(slurm, kube, Api(Path(kube["KUBECONFIG"])), name, directory, socket)
    with lock:
        _forget(made)
        _kube_lab("kubelet-cert", name, str(directory / "certs"))
        made.config.write_text(yaml.safe_dump(_config(made, _FIRST_PORT + number)))
        try:
            made.start("serve", "slurmrest-adapter", "serve")
            certificates = str(directory / "certs")
            made.start("vk-provider", "vk-provider", "--poll", "0.3", "--cert-dir", certificates)
            _until_ready(made)
            yield made
            _end_pods(made)
        finally:
            for daemon in made.daemons.values():
                daemon.terminate()
            for daemon in made.daemons.values():
                daemon.wait(30)
            _forget(made)
            socket.unlink(missing_ok=True)


def _kube_lab(*arguments: str) -> str:
    done = subprocess.run([KUBE_LAB, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _number(directory: Path) -> tuple[IO[str], int]:
    """The first number that nobody has, and the open file that holds it."""
    for number in itertools.count():
        lock = (directory / f"fidelity-{number}.lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
        else:
            return lock, number
    raise AssertionError


def _config(site: Site, port: int) -> dict[str, Any]:
    return site.slurm.config() | {
        "state_dir": str(site.directory / "state"),
        "listen": {"plugin": f"unix://{site.socket}", "allowed_uids": [0]},
        "node": {
            "name": site.node,
            "kubeconfig": _kube_lab("kubeconfig", "--as", f"node:{site.node}").strip(),
            "kubelet_port": port,
        },
        "podrunner": {"backoff_base_s": BACKOFF_S},
        "policy": {"host_paths": list(HOST_PATHS)},
    }


def _until_ready(site: Site) -> None:
    deadline = time.monotonic() + 300  # several suites on two cores start their daemons at once
    while True:
        node = site.api.find(f"/api/v1/nodes/{site.node}")
        conditions = node["status"].get("conditions", ()) if node else ()
        if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
            return
        assert time.monotonic() < deadline, site.story()
        time.sleep(0.2)


def _end_pods(site: Site) -> None:
    """Delete the node's pods as a user would, and see them go."""
    deadline = time.monotonic() + 60
    for pod in site.pods():
        site.api.delete(_path(pod))
    while left := site.pods():
        assert time.monotonic() < deadline, [pod["metadata"]["name"] for pod in left]
        time.sleep(0.2)


def _forget(site: Site) -> None:
    """No node and no pods on it, whoever made them."""
    for pod in site.pods():
        site.api.delete(_path(pod), grace=0)
    site.api.delete(f"/api/v1/nodes/{site.node}")


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
