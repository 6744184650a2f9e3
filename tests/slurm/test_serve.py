"""`serve` on the real Slurm, spoken to as interLink's API server does."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import Cli, Lab

pytestmark = pytest.mark.slurm
Pods = Callable[..., dict[str, Any]]


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(self._path)


class Sidecar:
    """A running `serve`."""

    def __init__(self, cli: Cli, socket_path: Path) -> None:
        self._cli = cli.configure(listen={"plugin": f"unix://{socket_path}", "allowed_uids": [0]})
        self._path = str(socket_path)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = self._cli.start("serve")
        deadline = time.monotonic() + 30
        while True:
            try:
                if self.call("GET", "/healthz")[0] == 200:
                    return
            except OSError:
                assert self._process.poll() is None, self._process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def end(self, how: signal.Signals = signal.SIGTERM) -> str:
        """Stop it; what it logged."""
        assert self._process is not None
        self._process.send_signal(how)
        _, err = self._process.communicate(timeout=30)
        return err.decode()

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        connection = UnixConnection(self._path)
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read().decode()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        code, text = self.call(method, path, body)
        assert code == 200, text
        return json.loads(text)

    def create(self, pod: dict[str, Any]) -> dict[str, str]:
        made: dict[str, str] = self.ask("POST", "/create", {"pod": pod, "container": None})
        return made

    def status(self, pod: dict[str, Any]) -> dict[str, Any]:
        (entry,) = self.ask("GET", "/status", [pod])
        return dict(entry)

    def until(self, pod: dict[str, Any], wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while not wanted(entry := self.status(pod)):
            assert time.monotonic() < deadline, entry
            time.sleep(0.2)
        return entry


@pytest.fixture
def sidecar(cli: Cli, tmp_path: Path) -> Iterator[Sidecar]:
    # A socket's path may have 108 bytes; pytest's directories are longer.
    path = Path("/tmp") / f"sra-{uuid.uuid4().hex[:12]}.sock"
    running = Sidecar(cli, path)
    yield running
    running.end()
    path.unlink(missing_ok=True)


def with_uid(pod: dict[str, Any]) -> dict[str, Any]:
    pod["metadata"]["uid"] = str(uuid.uuid4())
    return pod


def state(entry: dict[str, Any], name: str) -> dict[str, Any]:
    both = [*entry["initContainers"], *entry["containers"]]
    return dict(next(one["state"] for one in both if one["name"] == name))


def test_the_ping_is_what_slurmctld_says(sidecar: Sidecar, lab: Lab) -> None:
    empty: list[Any] = [[], None]
    for body in empty:
        ping = sidecar.ask("GET", "/status", body)
        assert ping["slurm_connected"] is True
        resources = ping["resources"]
        nodes = json.loads(lab.exec("sinfo", "-N", "--json"))["sinfo"]
        seen = {n["nodes"]["nodes"][0]: (n["cpus"]["total"], n["memory"]["maximum"]) for n in nodes}
        assert int(resources["cpu"]) == sum(cpus for cpus, _ in seen.values())
        assert resources["memory"] == f"{sum(memory for _, memory in seen.values())}Mi"
        assert resources["accelerators"] == [{"resourceType": "nvidia.com/gpu", "available": "10"}]


def test_a_pod_from_create_to_its_end(sidecar: Sidecar, pod: Pods) -> None:
    made = with_uid(pod(gpus=1, main="echo hello; sleep 1; exit 3", other="echo gpu $CUDA_VISIBLE_DEVICES"))
    first, second = sidecar.create(made), sidecar.create(made)
    assert first == second
    assert first["PodUID"] == made["metadata"]["uid"]
    entry = sidecar.until(made, lambda e: e["phase"] == "Failed")
    assert entry["JID"] == first["PodJID"]
    assert state(entry, "main")["terminated"]["exitCode"] == 3
    assert state(entry, "other")["terminated"]["reason"] == "Completed"
    options = {"PodUID": made["metadata"]["uid"], "ContainerName": "main", "Opts": {"Tail": 5}}
    assert sidecar.call("GET", "/getLogs", options) == (200, "hello\n")


def test_following_a_log_ends_with_the_container(sidecar: Sidecar, pod: Pods) -> None:
    made = with_uid(pod(main="for i in 1 2 3; do echo $i; sleep 0.4; done"))
    sidecar.create(made)
    options = {"PodUID": made["metadata"]["uid"], "ContainerName": "main", "Opts": {"Follow": True}}
    assert sidecar.call("GET", "/getLogs", options) == (200, "1\n2\n3\n")


def test_refusals_say_why(sidecar: Sidecar, pod: Pods) -> None:
    code, text = sidecar.call("POST", "/create", {"pod": with_uid(pod(main="true", namespace="strangers"))})
    assert code == 403
    assert "strangers" in text
    code, text = sidecar.call("POST", "/create", {"pod": with_uid(pod(main="true", gpus=9))})
    assert code == 422
    assert "Slurm refused" in text
    code, text = sidecar.call(
        "POST", "/create", {"pod": with_uid(pod(main={"command": ["true"], "stdin": True}))}
    )
    assert code == 400
    assert "spec.containers[0].stdin" in text
    assert sidecar.call("POST", "/create", "nonsense")[0] == 400


def test_delete_is_idempotent_and_keeps_the_grace(sidecar: Sidecar, pod: Pods) -> None:
    made = with_uid(pod(main="trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"))
    assert sidecar.call("POST", "/delete", made)[0] == 200  # not known yet
    sidecar.create(made)
    options = {"PodUID": made["metadata"]["uid"], "ContainerName": "main", "Opts": {}}
    sidecar.until(made, lambda e: sidecar.call("GET", "/getLogs", options)[1] == "up\n")
    for _ in range(2):
        assert sidecar.call("POST", "/delete", made)[0] == 200
    entry = sidecar.until(made, lambda e: "terminated" in state(e, "main"))
    assert state(entry, "main")["terminated"]["exitCode"] == 0
    assert sidecar.call("GET", "/getLogs", options)[1] == "up\nbye\n"


def test_killed_and_started_again_it_follows_on(sidecar: Sidecar, pod: Pods, lab: Lab) -> None:
    made = with_uid(pod(main="sleep 4; exit 6"))
    job = sidecar.create(made)["PodJID"]
    sidecar.until(made, lambda e: "running" in state(e, "main"))
    sidecar.end(signal.SIGKILL)
    sidecar.start()
    assert sidecar.create(made)["PodJID"] == job
    entry = sidecar.until(made, lambda e: "terminated" in state(e, "main"))
    assert state(entry, "main")["terminated"]["exitCode"] == 6
    assert lab.exec("sacct", "-X", "-n", "-P", "-j", job, "-o", "State").strip() in ("FAILED", "")


def test_only_listed_users_may_connect(sidecar: Sidecar) -> None:
    path = sidecar._path
    assert oct(Path(path).stat().st_mode & 0o777) == "0o600"
    script = "import socket,sys; s=socket.socket(socket.AF_UNIX); sys.exit(s.connect_ex(sys.argv[1]) == 0)"
    done = subprocess.run(["python3", "-c", script, path], user=65534, check=False)
    assert done.returncode == 0


def test_nothing_secret_in_the_log(sidecar: Sidecar, pod: Pods) -> None:
    env = [{"name": "PASSWORD", "value": "hunter2-serve"}]
    made = with_uid(pod(main={"command": ["sh", "-c", "echo $$PASSWORD hunter2-serve"], "env": env}))
    sidecar.create(made)
    sidecar.until(made, lambda e: e["phase"] == "Succeeded")
    logged = sidecar.end()
    sidecar.start()
    assert "hunter2-serve" not in logged
    assert made["metadata"]["uid"] in logged


@pytest.mark.disruptive
def test_while_slurmctld_is_down(sidecar: Sidecar, pod: Pods, lab: Lab) -> None:
    made = with_uid(pod(main="sleep 100"))
    sidecar.create(made)
    sidecar.until(made, lambda e: e["phase"] == "Running")
    before = sidecar.ask("GET", "/status", [])
    lab.daemon("stop", "slurmctld")
    try:
        deadline = time.monotonic() + 60
        while (ping := sidecar.ask("GET", "/status", []))["slurm_connected"]:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        code, text = sidecar.call("POST", "/create", {"pod": with_uid(pod(main="true"))})
        meanwhile = sidecar.status(made)
    finally:
        lab.daemon("start", "slurmctld")
    assert ping["resources"] == before["resources"]
    assert (code, "slurmctld" in text) == (503, True)
    assert meanwhile["phase"] == "Running"
    sidecar.call(
        "POST", "/delete", {**made, "metadata": {**made["metadata"], "deletionGracePeriodSeconds": 0}}
    )
    sidecar.until(made, lambda e: "terminated" in state(e, "main"))
