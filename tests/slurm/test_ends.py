"""Every way a pod ends in the lab: what its containers hear, what is said of it, and what is left.

Each is told by CONTRACT.md's table of outcomes. Nothing of a pod may be left on its node: no process,
no mount, no directory and no file but status, logs and claim in the pod's own directory.
"""

from __future__ import annotations

import json
import secrets
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import Cli, Lab, container

pytestmark = pytest.mark.slurm
Document = dict[str, Any]
MODES = pytest.mark.parametrize("mode", ["sandbox", "plain"])

# Looks, as root, for all that has one of the words in it. Paths of the pod's own directory are not
# among the places: they are looked at from outside.
LEFT = """
import os, sys
words = [word.encode() for word in sys.argv[1:]]
def has(data):
    return any(word in data for word in words)
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) in (os.getpid(), os.getppid()):
        continue
    for name in ("cmdline", "environ", "mountinfo"):
        try:
            with open("/proc/%s/%s" % (pid, name), "rb") as stream:
                text = stream.read()
        except OSError:
            continue
        if has(text):
            print("process", pid, name, text[:200])
for place in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/spool/slurmd"):
    for folder, directories, files in os.walk(place):
        for name in directories + files:
            if has(os.fsencode(name)):
                print("file", os.path.join(folder, name))
"""
SAYS = "trap 'sleep 0.2; echo bye; exit {0}' TERM; echo up; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo up; while :; do sleep 0.05; done"


@dataclass
class Started:
    """A pod that runs; everything that it has on the node carries its mark."""

    cli: Cli
    lab: Lab
    uid: str
    mark: str
    job: int
    directory: Path = field(default_factory=Path)

    def name(self, container_name: str) -> str:
        return f"{container_name}-{self.mark}"

    def until(self, wanted: Callable[[Document], bool]) -> Document:
        return self.cli.until(self.uid, wanted, 120)

    def until_up(self, *names: str) -> None:
        self.until(lambda _: all(self.logs(name)[:1] == ["up"] for name in names))
        pods = Path(self.lab.env["LAB_SHARED"], "pods").glob("*/status.json")
        self.directory = next(p.parent for p in pods if json.loads(p.read_text())["uid"] == self.uid)
        # What is looked for can be found.
        assert self.left() != ""

    def logs(self, name: str) -> list[str]:
        """What a container said, without its shell's word for a child that heard TERM too."""
        said = self.cli("logs", self.uid, "-c", self.name(name)).out.split()
        return [word for word in said if word != "Terminated"]

    def ended(self) -> Document:
        return self.until(lambda document: bool(document["usage"]))

    def delete(self, *options: str) -> Document:
        done = self.cli("delete", self.uid, *options)
        assert done.code == 0, done.err
        return self.ended()

    def state(self, document: Document, name: str) -> tuple[str, str | None, int | None]:
        one = container(document, self.name(name))
        return one["state"], one["reason"], one["exitCode"]

    def left(self) -> str:
        return self.lab.exec("python3", "-c", LEFT, self.mark, self.directory.name)

    def nothing_left(self, kinds: str = "process file") -> None:
        """Slurm's own processes of a job end some moments after it, and slowly on a busy machine."""
        deadline = time.monotonic() + 60
        while found := [line for line in self.left().splitlines() if line.split()[0] in kinds]:
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        if "file" in kinds:
            names = {path.name for path in self.directory.iterdir()}
            # In plain mode the names that a container sees lie here, where there is no memory of its own.
            assert names <= {"status.json", "claim", "logs", "runner.log", "etc", "empty"}

    def told(self, document: Document, state: str, reason: str | None, *words: str) -> None:
        """The pod failed for this reason, and says so in Slurm's words."""
        assert (document["phase"], document["reason"]) == ("Failed", reason), document
        assert document["job"]["state"] == [state], document
        for word in (f"Slurm job {self.job} ", f"state {state}", "reason ", *words):
            assert word in document["message"], document["message"]
        assert "exit code " in document["message"] or "signal " in document["message"]


Start = Callable[..., Started]


@pytest.fixture
def start(cli: Cli, lab: Lab) -> Start:
    """Starts a pod: keyword → script; `init` and `sidecar` are init containers of those kinds."""

    def make(
        mode: str, policy: str = "Never", grace: int = 3, settings: dict[str, Any] | None = None,
        gpus: int = 0, **scripts: str,
    ) -> Started:  # fmt: skip
        mark = f"mark{secrets.token_hex(5)}"
        chosen = cli.configure(podrunner={"mode": mode, "backoff_base_s": 100}, **(settings or {}))

        def one(name: str, script: str) -> dict[str, Any]:
            limits: dict[str, Any] = {"cpu": "100m", "memory": "20Mi"}
            if gpus:
                limits["nvidia.com/gpu"] = gpus
            return {
                "name": f"{name}-{mark}",
                "image": f"{lab.registry}/lab/busybox:1",
                "command": ["sh", "-c", f": {mark}; {script}"],
                "env": [{"name": "MARK", "value": mark}],
                "resources": {"limits": limits},
                "volumeMounts": [
                    {"name": f"{kind}-{mark}", "mountPath": f"/{kind}"} for kind in ("disk", "memory", "keys")
                ],
            }

        first = [one(name, scripts.pop(name)) for name in ("sidecar", "init") if name in scripts]
        for each in first:
            if each["name"].startswith("sidecar"):
                each["restartPolicy"] = "Always"
        spec = {
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": grace,
            "initContainers": first,
            "containers": [one(*item) for item in scripts.items()],
            "volumes": [
                {"name": f"disk-{mark}", "emptyDir": {}},
                {"name": f"memory-{mark}", "emptyDir": {"medium": "Memory"}},
                {"name": f"keys-{mark}", "secret": {"secretName": "keys"}},
            ],
        }
        if gpus:
            spec["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-L40S"}
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "ends", "namespace": "physics"},
            "spec": spec,
        }
        keys = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "keys", "namespace": "physics"},
            "data": {"key": "aHVudGVyMg=="},
        }
        done = chosen.run(manifest, keys, options=("--detach",))
        assert done.code == 0, done.err
        document = done.json()
        return Started(chosen, lab, document["uid"], mark, document["job"]["id"])

    return make


@MODES
def test_deleted_while_an_init_container_runs(start: Start, mode: str) -> None:
    pod = start(mode, init=SAYS.format(4), sidecar=SAYS.format(0), main="true")
    pod.until_up("init", "sidecar")
    document = pod.delete()
    pod.told(document, "FAILED", None, "was ended by the pod's deletion")
    assert pod.state(document, "init") == ("terminated", "Error", 4)
    assert pod.state(document, "sidecar") == ("terminated", "Completed", 0)
    assert pod.state(document, "main")[:2] == ("waiting", "PodInitializing")
    assert (pod.logs("init"), pod.logs("sidecar")) == (["up", "bye"], ["up", "bye"])
    assert pod.logs("main") == []
    pod.nothing_left()


@MODES
def test_deleted_while_it_runs(start: Start, mode: str) -> None:
    pod = start(mode, polite=SAYS.format(0), rude=SAYS.format(5), deaf=DEAF, plain="echo up; exec sleep 1000")
    pod.until_up("polite", "rude", "deaf", "plain")
    document = pod.delete()
    # One that hears nothing is killed by the runner at the end of its grace; no cancel is needed.
    pod.told(document, "FAILED", None, "was ended by the pod's deletion")
    assert pod.state(document, "polite") == ("terminated", "Completed", 0)
    assert pod.state(document, "rude") == ("terminated", "Error", 5)
    assert pod.state(document, "deaf") == ("terminated", "Error", 137)
    assert pod.state(document, "plain") == ("terminated", "Error", 143)
    assert pod.logs("polite") == ["up", "bye"]
    pod.nothing_left()


@MODES
def test_deleted_without_grace(start: Start, mode: str) -> None:
    pod = start(mode, main=DEAF)
    pod.until_up("main")
    document = pod.delete("--grace-period", "0")
    pod.told(document, "CANCELLED", None, "was ended by the pod's deletion")
    killed_in_time(pod, document)


@MODES
def test_deleted_while_in_back_off(start: Start, mode: str) -> None:
    pod = start(mode, policy="Always", main="echo up; exit 3")
    pod.until_up("main")
    waits = pod.until(lambda d: pod.state(d, "main")[:2] == ("waiting", "CrashLoopBackOff"))
    assert waits["phase"] == "Running"
    document = pod.delete()
    pod.told(document, "FAILED", None, "was ended by the pod's deletion", "exit code 3")
    assert pod.state(document, "main") == ("terminated", "Error", 3)
    pod.nothing_left()


def by_scancel(pod: Started) -> str:
    pod.lab.exec("scancel", str(pod.job))
    return "root"


def by_an_operator(pod: Started) -> str:
    """As another admin, by REST."""
    request = urllib.request.Request(
        f"{pod.lab.env['LAB_REST']}/slurm/v0.0.42/job/{pod.job}",
        method="DELETE",
        headers={"X-SLURM-USER-NAME": "slurmrest", "X-SLURM-USER-TOKEN": pod.lab.token("slurmrest")},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        assert json.load(answer)["errors"] == []
    return "slurmrest"


@MODES
@pytest.mark.parametrize("how", [by_scancel, by_an_operator])
def test_cancelled_by_an_admin(start: Start, mode: str, how: Callable[[Started], str]) -> None:
    pod = start(mode, grace=1, polite=SAYS.format(0), rude=SAYS.format(5), plain="echo up; exec sleep 1000")
    pod.until_up("polite", "rude", "plain")
    who = how(pod)
    document = pod.ended()
    pod.told(document, "CANCELLED", "SlurmJobCancelled", f"was cancelled by user {who}")
    # Slurm's TERM came to all of them at once, and took no container's files away.
    assert pod.state(document, "polite") == ("terminated", "Completed", 0)
    assert pod.state(document, "rude") == ("terminated", "Error", 5)
    assert pod.state(document, "plain") == ("terminated", "Error", 143)
    assert pod.logs("polite") == ["up", "bye"]
    pod.nothing_left()


def gone_with_the_next(pod: Started, start: Start, mode: str) -> None:
    """After a runner that was killed no process and no mount is left, and no file after the next pod.

    Nothing of the job outlives Slurm's KILL to tidy up; the next pod of the same user on the node does,
    also one of the other mode.
    """
    pod.nothing_left("process")
    node = pod.cli.status(pod.uid)["job"]["node"]
    after = start({"sandbox": "plain", "plain": "sandbox"}[mode], main="echo up")
    document = after.ended()
    if document["job"]["node"] == node:
        pod.lab.exec("rm", "-rf", f"/shared/pods/{pod.directory.name}/sandbox")
        pod.nothing_left()


def killed_in_time(pod: Started, document: Document) -> None:
    """By its runner, which told of it and tidied up, before Slurm's own KILL came."""
    main = container(document, pod.name("main"))
    assert pod.state(document, "main") == ("terminated", "Error", 137)
    assert main["message"] is None, main
    assert json.loads((pod.directory / "status.json").read_text())["phase"] == "ended"
    pod.nothing_left()


@MODES
def test_cancelled_with_a_container_that_hears_nothing(start: Start, mode: str) -> None:
    """KillWait would be over long before the pod's grace."""
    pod = start(mode, grace=600, main=DEAF)
    pod.until_up("main")
    by_scancel(pod)
    document = pod.ended()
    pod.told(document, "CANCELLED", "SlurmJobCancelled", "was cancelled by user root")
    killed_in_time(pod, document)


def test_slurms_time_limit(start: Start) -> None:
    """Both modes at once, polite and deaf: a minute is Slurm's least."""
    pods = [
        (start(mode, grace=grace, settings={"defaults": {"time_limit": "1m"}}, main=script), grace)
        for mode in ("sandbox", "plain")
        for script, grace in ((SAYS.format(7), 1), (DEAF, 600))
    ]
    for pod, _ in pods:
        pod.until_up("main")
    for pod, grace in pods:
        document = pod.until(lambda d: bool(d["usage"]))
        pod.told(document, "TIMEOUT", "DeadlineExceeded", "reached Slurm's time limit", "TimeLimit")
        if grace == 600:
            killed_in_time(pod, document)
            continue
        assert pod.state(document, "main") == ("terminated", "Error", 7)
        assert pod.logs("main") == ["up", "bye"]
        pod.nothing_left()


@MODES
def test_preempted_with_grace(start: Start, lab: Lab, mode: str) -> None:
    pod = start(mode, gpus=2, main=SAYS.format(7))
    pod.until_up("main")
    other = lab.exec(
        "sbatch", "--parsable", "--qos=high", "--partition=gpu", "--gres=gpu:l40s:2", "--output=/dev/null",
        "--wrap=exec sleep 30", user="alice",
    ).strip()  # fmt: skip
    try:
        document = pod.ended()
    finally:
        lab.exec("scancel", other)
    pod.told(document, "PREEMPTED", "Preempted", "was preempted")
    assert pod.state(document, "main") == ("terminated", "Error", 7)
    assert pod.logs("main") == ["up", "bye"]
    assert [one["type"] for one in document["conditions"]] == ["DisruptionTarget"]
    pod.nothing_left()


@MODES
def test_kill_9_of_the_runner(start: Start, lab: Lab, mode: str) -> None:
    pod = start(mode, policy="Always", sidecar=DEAF, main=DEAF)
    pod.until_up("sidecar", "main")
    lab.exec("scancel", "--batch", "--signal=KILL", str(pod.job))
    document = pod.ended()
    pod.told(document, "FAILED", None, "signal 9")
    for name in ("sidecar", "main"):
        assert pod.state(document, name) == ("terminated", "ContainerStatusUnknown", 137)
    gone_with_the_next(pod, start, mode)


@MODES
def test_kill_9_of_the_whole_job(start: Start, lab: Lab, mode: str) -> None:
    """Of all its processes that Slurm finds, at once; Slurm calls that cancelled."""
    pod = start(mode, policy="Always", sidecar=DEAF, main=DEAF)
    pod.until_up("sidecar", "main")
    lab.exec("scancel", "--full", "--signal=KILL", str(pod.job))
    document = pod.ended()
    pod.told(document, "CANCELLED", "SlurmJobCancelled", "was cancelled by user root")
    for name in ("sidecar", "main"):
        assert pod.state(document, name) == ("terminated", "Error", 137)
    gone_with_the_next(pod, start, mode)


# Ends, as root, all that a job has on its node, as a power cut would: what has one of the words in it, and
# Slurm's own process for the job.
POWER_CUT = """
import os, signal, sys
words = [word.encode() for word in sys.argv[2:]] + [("SLURM_JOB_ID=%s\\0" % sys.argv[1]).encode()]
step = ("slurmstepd: [%s." % sys.argv[1]).encode()
ended = True
while ended:
    ended = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) in (os.getpid(), os.getppid()):
            continue
        texts = []
        for name in ("cmdline", "environ", "mountinfo"):
            try:
                with open("/proc/%s/%s" % (pid, name), "rb") as stream:
                    texts.append(stream.read())
            except OSError:
                pass
        if texts and texts[0].startswith(step) or any(word in text for word in words for text in texts):
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended = True
"""


@pytest.mark.disruptive
def test_its_node_dies(start: Start, lab: Lab) -> None:
    """Power lost on the node; an operator tells Slurm, which would find out by itself after SlurmdTimeout."""
    pods = [start(mode, policy="Always", main=DEAF) for mode in ("sandbox", "plain")]
    for pod in pods:
        pod.until_up("main")
    nodes = {pod.cli.status(pod.uid)["job"]["node"] for pod in pods}
    try:
        for node in nodes:
            lab.daemon("stop", f"slurmd-{node}")
        for pod in pods:
            lab.exec("python3", "-c", POWER_CUT, str(pod.job), pod.mark, pod.directory.name)
        for pod in pods:
            # As long as Slurm knows nothing the pod is what it was: unknown is not failed.
            assert pod.cli.status(pod.uid)["phase"] == "Running"
        lab.exec("scontrol", "update", f"nodename={','.join(nodes)}", "state=down", "reason=power lost")
        documents = [pod.ended() for pod in pods]
    finally:
        for node in nodes:
            lab.daemon("start", f"slurmd-{node}")
        # Refused where its registration has made it usable again already.
        lab.exec("scontrol", "update", f"nodename={','.join(nodes)}", "state=resume", code=None)
    for pod, document in zip(pods, documents, strict=True):
        pod.told(document, "NODE_FAIL", "NodeLost", f"lost its node {document['job']['node']}:")
        assert pod.state(document, "main") == ("terminated", "ContainerStatusUnknown", 137)
    # The node is back, and takes pods.
    for pod, mode in zip(pods, ("sandbox", "plain"), strict=True):
        gone_with_the_next(pod, start, mode)
