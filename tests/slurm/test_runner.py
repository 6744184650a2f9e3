"""The pod runner as a real job: submitted by REST as alice, with Apptainer, in the lab's Slurm."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.podplan import ContainerPlan, PodPlan
from slurmrest_adapter.runtimes.apptainer import ApptainerRuntime

pytestmark = pytest.mark.slurm

SLURM_LAB = Path(__file__).parents[2] / "scripts" / "slurm-lab"
ALICE = 2001
SIF = "/shared/images/busybox.sif"
WAIT_SECONDS = 120  # a limit for a broken lab, no claim about speed
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}
# On TERM: proves that programs still come from the image, says so, and ends with an own code.
TRAP = (
    'trap \'printf "%s\\n" "files: $(ls /usr/bin | grep -c .)"; echo term; exit 7\' TERM; '
    "echo up; while :; do sleep 0.1; done"
)
FIND = """
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("cmdline", "environ"):
        try:
            text = open("/proc/%s/%s" % (pid, name), "rb").read()
        except OSError:
            continue
        if sys.argv[1].encode() in text and int(pid) != os.getpid():
            print(pid, text.replace(b"\\0", b" ")[:200])
"""


def lab(*arguments: str) -> str:
    done = subprocess.run([SLURM_LAB, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_for(what: str, question: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not question():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.1)


@dataclass
class Site:
    """The lab as the sidecar would see it: slurmrestd, a token of alice, the shared directory."""

    rest: str
    token: str = field(repr=False)
    shared: Path
    registry: str
    pods: list[Pod] = field(default_factory=list, repr=False)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.rest}/slurm/v0.0.42/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "X-SLURM-USER-NAME": "alice",
                "X-SLURM-USER-TOKEN": self.token,
                "Content-Type": "application/json",
            },
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from error

    def image(self, name: str) -> str:
        return f"docker://{self.registry}/lab/{name}"

    def pod(
        self, *containers: ContainerPlan, mode: Any = "auto", cache: str | None = None, **values: Any
    ) -> Pod:
        """Write a plan as the sidecar does."""
        runtime = ApptainerRuntime((self.registry,), cache, mode)
        values.setdefault("hostname", "pod-host")
        plan = PodPlan(
            secrets.token_hex(8), "physics", "p", "lab", containers, runtime=runtime.plan_section(), **values
        )
        folder = self.shared / "pods" / secrets.token_hex(16)
        folder.mkdir(mode=0o700, parents=True)
        file = folder / "plan.json"
        file.write_text(plan.to_json())
        file.chmod(0o400)
        for path in (file, folder):
            os.chown(path, ALICE, ALICE)
        pod = Pod(self, folder, runtime.job_script())
        self.pods.append(pod)
        return pod


@dataclass
class Pod:
    """One pod's directory and the jobs that were submitted for it."""

    site: Site
    folder: Path
    script: str = field(repr=False)
    jobs: list[int] = field(default_factory=list)

    def submit(self, **fields: Any) -> int:
        job = {
            "name": "runner-test",
            "account": "physics",
            "partition": "all",
            "current_working_directory": "/",
            "standard_output": "/dev/null",
            "standard_error": "/dev/null",
            "standard_input": "/dev/null",
            "tasks": 1,
            "time_limit": {"set": True, "number": 5},
            "memory_per_node": {"set": True, "number": 64},
            "environment": [
                "PATH=/usr/local/bin:/usr/bin:/bin",
                "HOME=/home/alice",
                "USER=alice",
                "LANG=C.UTF-8",
                f"SRA_POD_DIR=/shared/pods/{self.folder.name}",
            ],
            **fields,
        }
        answer = self.site.call("POST", "job/submit", {"script": self.script, "job": job})
        assert answer["job_id"], answer
        self.jobs.append(answer["job_id"])
        return self.jobs[-1]

    def state(self) -> tuple[set[str], int | None]:
        record = self.site.call("GET", f"job/{self.jobs[-1]}")["jobs"][0]
        code = record["exit_code"]["return_code"]
        return set(record["job_state"]), code["number"] if code["set"] else None

    def wait(self) -> int | None:
        """Wait for the job's end and the runner's last record; the exit code that Slurm saw."""
        wait_for("the job's end", lambda: bool(self.state()[0] & ENDED))
        wait_for("the last process of the job", lambda: self.processes() == "")
        return self.state()[1]

    def run(self, **fields: Any) -> int | None:
        self.submit(**fields)
        return self.wait()

    def delete(self, query: str = "") -> None:
        self.site.call("DELETE", f"job/{self.jobs[-1]}{query}")

    def status(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.folder / "status.json").read_text())
        return data

    def record(self, index: int = 0) -> dict[str, Any]:
        record: dict[str, Any] = self.status()["containers"][index]
        return record

    def runner_log(self) -> str:
        return (self.folder / "runner.log").read_text()

    def output(self, name: str, stream: str = "stdout") -> str:
        """What a container wrote, put together again from its log."""
        text = b""
        path = self.folder / "logs" / name / "0.log"
        for line in path.read_bytes().split(b"\n") if path.exists() else []:
            match = re.match(rb"^\S+Z (stdout|stderr) ([PF]) (.*)$", line, re.DOTALL)
            if match and match[1].decode() == stream:
                text += match[3] + (b"\n" if match[2] == b"F" else b"")
        return text.decode()

    def processes(self) -> str:
        """The processes in the lab that have this pod's directory in their arguments or environment."""
        return lab("exec", "python3", "-c", FIND, self.folder.name)


@pytest.fixture(scope="module")
def shared_site() -> Site:
    lab("up")
    settings = dict(word.split("=", 1) for word in shlex.split(lab("env")))
    return Site(
        settings["LAB_REST"],
        lab("token", "alice").strip(),
        Path(settings["LAB_SHARED"]),
        settings["LAB_REGISTRY"],
    )


@pytest.fixture
def site(shared_site: Site) -> Iterator[Site]:
    shared_site.pods = []
    yield shared_site
    for pod in shared_site.pods:
        for job in pod.jobs:
            lab("exec", "scancel", "--quiet", str(job))
        wait_for("the job's processes", lambda pod=pod: pod.processes() == "")  # type: ignore[misc]
        subprocess.run(["rm", "-rf", pod.folder], check=True)


def shell(text: str, name: str = "main", image: str = SIF, **values: Any) -> ContainerPlan:
    return ContainerPlan(name, image, command=("/bin/sh", "-c", text), **values)


HOSTILE = (
    "plain", "", " ", "'", '"', "it's \"both\"", "$(id)", "`id`", "$HOME ${X} $$", "\\", "a\\nb\\", "-rf",
    "--", "--help", "a=b", "=", "*", "~", "!!", "a\nb\n", "\n", "\ttab\t", "\r", "größer ☃ 𝄞",
    "a,b:c;d&e|f>g<h", "#", "%s%n", "x" * 65536, "\x01\x1b[31m", "--env X=1",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_hostile_bytes_arrive(site: Site, mode: str) -> None:
    code = "import base64,json,os,sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    env = tuple((f"HOSTILE_{number}", value) for number, value in enumerate(HOSTILE))
    pod = site.pod(
        ContainerPlan(
            "main", site.image("python:3"), command=("python3", "-c", code, *HOSTILE), args=HOSTILE, env=env
        ),
        mode=mode,
    )
    assert pod.run() == 0, pod.runner_log() + str(pod.record())
    argv, environ = json.loads(pod.output("main"))
    assert tuple(argv) == HOSTILE * 2
    assert tuple(environ[name] for name, _ in env) == HOSTILE
    assert pod.status()["runner"]["mode"] == mode
    # Nothing of the node or of Slurm, but the GPUs, which are none.
    assert not [name for name in environ if name.startswith(("SLURM", "SRA_", "APPTAINERENV"))]
    assert {"USER", "HOSTNAME", "TMPDIR"}.isdisjoint(environ)
    assert environ["CUDA_VISIBLE_DEVICES"] == ""
    assert environ["HOME"] == "/"
    assert environ["LAB_IMAGE"] == "python"


def test_entrypoint_command_environment_and_directory_of_the_image(site: Site) -> None:
    image = site.image("entry:1")
    pod = site.pod(
        ContainerPlan("default", image),
        ContainerPlan("args", image, args=("echo", "$(id)", "x  y")),
        ContainerPlan("environment", image, args=("env",), env=(("LAB_IMAGE", "mine"),)),
        shell("pwd; ls -a", "elsewhere", image, working_dir="/not/in/the/image"),
    )
    assert pod.run() == 0, pod.runner_log() + json.dumps(pod.status())
    assert pod.output("default").splitlines() == [
        "entry: cwd=/work/dir",
        "entry: arg=[--fixed arg]",
        "entry: arg=[echo]",
        "entry: arg=[default  words]",
        "entry: arg=[$HOME]",
        "default  words $HOME",
    ]
    assert pod.output("args").splitlines()[-1] == "$(id) x  y"
    environment = pod.output("environment")
    for line in ("ODD_DOLLAR=$HOME ${HOME} $(id) `id`", 'ODD_QUOTES=it\'s "quoted"', "ODD_BACKSLASH=a\\nb\\"):
        assert f"\n{line}\n" in environment
    assert "\nODD_NEWLINE=first\nsecond\n" in environment
    assert "\nLAB_IMAGE=mine\n" in environment
    assert pod.output("elsewhere").split() == ["/not/in/the/image", ".", ".."]


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_an_exit_code_is_the_jobs(site: Site, mode: str) -> None:
    pod = site.pod(shell("exit 3"), mode=mode)
    assert pod.run() == 3, pod.runner_log()
    status = pod.status()
    assert status["end"] == {"exit_code": 3, "reason": None, "message": ""}
    assert (status["phase"], status["runner"]["mode"]) == ("ended", mode)
    assert status["job"]["id"] == str(pod.jobs[0])
    record = pod.record()
    assert (record["state"], record["reason"], record["exit_code"]) == ("terminated", "Error", 3)
    assert record["started_at"] <= record["finished_at"]
    assert pod.state()[0] == {"FAILED"}
    for path in (
        pod.folder / "status.json",
        pod.folder / "logs" / "main" / "0.log",
        pod.folder / "runner.log",
    ):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_uid == ALICE


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_what_a_container_uses(site: Site, mode: str) -> None:
    # Time that was used by a process that has ended, and memory that is held by another one.
    code = """
import os, time
if os.fork() == 0:
    while time.process_time() < 1: pass
    os._exit(0)
os.wait()
if os.fork() == 0:
    held = bytearray(os.urandom(1)) * (50 << 20)
    time.sleep(600)
os.wait()
"""
    pod = site.pod(
        ContainerPlan("works", site.image("python:3"), command=("python3", "-c", code)),
        shell("exec sleep 600", "waits"),
        mode=mode,
    )
    pod.submit(memory_per_node={"set": True, "number": 256})
    least = 40 << 20

    def sampled() -> bool:
        records = pod.status()["containers"] if (pod.folder / "status.json").exists() else []
        held, idle = ([one["memory_bytes"] for one in records] + [None, None])[:2]
        return held is not None and held > least and idle is not None

    wait_for("a sample of the container's memory", sampled)
    assert pod.record()["cpu_s"] > 0.5
    pod.delete()
    pod.wait()
    works, waits = pod.status()["containers"]
    assert works["state"] == waits["state"] == "terminated"
    assert works["cpu_s"] > 0.5
    assert works["memory_peak_bytes"] >= works["memory_bytes"] > least
    # What one container uses is not counted as another one's.
    assert 0 < waits["memory_peak_bytes"] < least
    assert waits["cpu_s"] < works["cpu_s"]


# Opening one of the lab's GPU files says that nothing is behind it, unless the mount forbids to open it.
LOOK = """
echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES
cd /dev; echo $(ls | grep nvidia | LC_ALL=C sort); for d in nvidia[0-9]; do cat $d; done
"""


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_each_container_has_its_gpus_and_no_other(site: Site, mode: str) -> None:
    given: dict[str, tuple[int, ...]] = {"first": (0,), "second": (1,), "both": (0, 1), "none": ()}
    pod = site.pod(
        *(shell(LOOK, name, gpus=positions) for name, positions in given.items()),
        shell(LOOK, "own", gpus=(1,), env=(("CUDA_VISIBLE_DEVICES", "mine"),)),
        mode=mode,
    )
    pod.run(partition="gpu", tres_per_node="gres/gpu:2")
    allotted = pod.status()["job"]["gpus"]
    assert len(allotted) == 2, pod.runner_log()
    for index, (name, positions) in enumerate([*given.items(), ("own", (1,))]):
        mine = [allotted[position] for position in positions]
        assert pod.record(index)["gpus"] == mine
        told, devices = pod.output(name).split("\n")[:2]
        visible = ",".join(str(at) for at in range(len(mine)))
        assert told == (f"mine {visible}" if name == "own" else f"{visible} {visible}".strip()), name
        assert devices.split() == (
            sorted(["nvidia-uvm", *(f"nvidia{at}" for at in mine), "nvidiactl"]) if mine else []
        ), name
        assert pod.output(name, "stderr").count("No such device or address") == len(mine), name


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[None]:
    """Every node of the lab has a library and a program that an NVIDIA driver would bring."""
    library = tmp_path / "libcuda.so.1"
    (tmp_path / "x.c").write_text("int x;\n")
    subprocess.run(
        ["gcc", "-shared", "-Wl,-soname,libcuda.so.1", "-o", library, tmp_path / "x.c"], check=True
    )
    root = Path(dict(word.split("=", 1) for word in shlex.split(lab("env")))["LAB_ROOT"])
    there = {root / "usr/local/lib" / library.name: library.read_bytes()}
    there[root / "usr/bin/nvidia-smi"] = b"#!/bin/sh\necho the driver speaks\n"
    try:
        for path, content in there.items():
            path.write_bytes(content)
            path.chmod(0o755)
        lab("exec", "ldconfig")
        yield
    finally:
        for path in there:
            path.unlink(missing_ok=True)
        lab("exec", "ldconfig")


@pytest.mark.disruptive
@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_the_nodes_driver_comes_with_the_gpus(site: Site, driver: None, mode: str) -> None:
    """Its own, where Apptainer would put it; nothing of it in a container without GPUs."""
    look = "echo $LD_LIBRARY_PATH; ls /.singularity.d/libs | grep cuda; nvidia-smi"
    pod = site.pod(shell(look, "with", gpus=(0,)), shell(look, "without"), mode=mode)
    pod.run(partition="gpu", tres_per_node="gres/gpu:1")
    expected = "/.singularity.d/libs\nlibcuda.so.1\nthe driver speaks\n"
    assert pod.output("with") == expected, pod.runner_log() + pod.output("with", "stderr")
    assert "libcuda" not in pod.output("without")
    assert pod.record(1)["exit_code"] == 127


def test_init_containers_in_order_then_all(site: Site) -> None:
    mark = "echo $(cut -d' ' -f1 /proc/uptime)"
    pod = site.pod(
        shell(f"sleep 0.3; {mark}", "one", init=True),
        shell(f"sleep 0.3; {mark}", "two", init=True),
        shell(mark, "app"),
    )
    assert pod.run() == 0, pod.runner_log()
    times = [(pod.record(index)["started_at"], pod.record(index)["finished_at"]) for index in range(3)]
    assert times[0][1] <= times[1][0]
    assert times[1][1] <= times[2][0]


def test_a_failed_init_container(site: Site) -> None:
    pod = site.pod(shell("exit 4", "init", init=True), shell("echo never", "app"))
    assert pod.run() == 4
    assert (pod.record(1)["state"], pod.record(1)["reason"]) == ("waiting", "PodInitializing")


def test_what_cannot_be_run(site: Site) -> None:
    pod = site.pod(
        ContainerPlan("missing", site.image("no-such:1")),
        ContainerPlan("file", "/shared/images/none.sif"),
        ContainerPlan("broken", "/shared/images"),
        ContainerPlan("command", SIF, command=("no-such-command",)),
        ContainerPlan("forbidden", SIF, command=("/etc/passwd",)),
        ContainerPlan("name", SIF, command=("true",), env=(("a=b", "1"),)),
        shell("exit 255", "own"),
        shell("echo others run on", "last"),
    )
    assert pod.run() == 125, pod.runner_log()
    records = {record["name"]: record for record in pod.status()["containers"]}
    seen = {name: (record["reason"], record["exit_code"]) for name, record in records.items()}
    assert seen == {
        "missing": ("ErrImagePull", 125),
        "file": ("ErrImagePull", 125),
        "broken": ("ContainerCannotRun", 128),
        "command": ("ContainerCannotRun", 127),
        "forbidden": ("ContainerCannotRun", 126),
        "name": ("ContainerCannotRun", 128),
        "own": ("Error", 255),
        "last": ("Completed", 0),
    }
    assert (
        "manifest unknown" in records["missing"]["message"] or "NAME_UNKNOWN" in records["missing"]["message"]
    )
    assert "no-such-command" in records["command"]["message"]
    assert "'a=b'" in records["name"]["message"]


def test_apptainers_own_words_when_only_it_knows(site: Site) -> None:
    big = tuple((f"BIG_{number}", "x" * 120_000) for number in range(10))
    pod = site.pod(ContainerPlan("main", SIF, command=("true",), env=big), mode="plain")
    assert pod.run() == 128, pod.runner_log()
    assert pod.record()["reason"] == "ContainerCannotRun"
    assert "too big" in pod.record()["message"]


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_term_to_the_batch_process(site: Site, mode: str) -> None:
    pod = site.pod(shell(TRAP), mode=mode)
    pod.submit()
    wait_for("the container", lambda: pod.output("main") == "up\n")
    pod.delete("?signal=TERM&flags=BATCH_JOB")
    assert pod.wait() == 7, pod.runner_log()
    assert re.fullmatch(r"up\nfiles: \d{3}\nterm\n", pod.output("main"))
    assert pod.status()["end"] == {"exit_code": 7, "reason": "Terminated", "message": ""}


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_slurms_own_cancel(site: Site, mode: str) -> None:
    pod = site.pod(shell(TRAP), mode=mode)
    pod.submit()
    wait_for("the container", lambda: pod.output("main") == "up\n")
    pod.delete()
    pod.wait()
    # TERM went to every process of the job, and the root file system is still there.
    assert re.search(r"^files: \d{3}\nterm$", pod.output("main"), re.MULTILINE), pod.output("main", "stderr")
    assert pod.record()["exit_code"] == 7
    assert pod.status()["end"]["reason"] == "Terminated"
    assert "CANCELLED" in pod.state()[0]


def test_a_container_that_does_not_hear_term(site: Site) -> None:
    pod = site.pod(shell("trap '' TERM; echo up; while :; do sleep 0.1; done"), grace_seconds=1)
    pod.submit()
    wait_for("the container", lambda: pod.output("main") == "up\n")
    pod.delete("?signal=TERM&flags=BATCH_JOB")
    assert pod.wait() == 137, pod.runner_log()
    assert (pod.record()["exit_code"], pod.record()["signal"]) == (137, 9)


@pytest.mark.parametrize("mode", ["sandbox", "plain"])
def test_kill_leaves_nothing(site: Site, mode: str) -> None:
    """The pod has ten minutes, Slurm but its KillWait."""
    forever = "while :; do sleep 1; done"
    text = f"trap '' TERM; (setsid sh -c 'trap \"\" TERM; {forever}' &); echo up; {forever}"
    pod = site.pod(shell(text), grace_seconds=600, mode=mode)
    pod.submit()
    wait_for("the container", lambda: pod.output("main") == "up\n")
    assert pod.processes()
    pod.delete()
    pod.wait()  # checks that no process is left
    # The runner was there to tell.
    ended = pod.record()
    assert (ended["state"], ended["exit_code"], ended["signal"]) == ("terminated", 137, 9)
    assert pod.status()["phase"] == "ended"


def test_the_batch_processs_death_takes_everything_along(site: Site) -> None:
    pod = site.pod(shell("trap '' TERM; echo up; while :; do sleep 1; done"), mode="sandbox")
    pod.submit()
    wait_for("the container", lambda: pod.output("main") == "up\n")
    # Only the batch process hears this; what follows is the kernel's work.
    pod.delete("?signal=KILL&flags=BATCH_JOB")
    pod.wait()
    assert pod.record()["state"] == "running"


def test_the_deadline(site: Site) -> None:
    pod = site.pod(shell("exec sleep 1000"), deadline_seconds=2)
    assert pod.run() == 143, pod.runner_log()
    assert pod.status()["end"]["reason"] == "DeadlineExceeded"


def test_a_second_copy_is_a_no_op(site: Site) -> None:
    pod = site.pod(shell("echo once; sleep 1"))
    pod.submit()
    wait_for("the container", lambda: pod.output("main") == "once\n")
    first = pod.jobs[0]
    assert pod.run() == 0
    assert f"job {first} has this pod already" in pod.runner_log()
    assert pod.status()["job"]["id"] == str(first)
    pod.jobs.reverse()
    assert pod.wait() == 0
    assert pod.output("main") == "once\n"


def test_a_daemon_of_a_container_ends_with_it(site: Site) -> None:
    pod = site.pod(shell("setsid sleep 1000 & echo started"))
    assert pod.run() == 0
    assert pod.output("main") == "started\n"


def test_the_pods_own_shm_and_hostname(site: Site) -> None:
    pod = site.pod(
        shell(
            "hostname; echo hi >/dev/shm/note; df -k /dev/shm | awk 'NR==2{print $2}'", "writer", init=True
        ),
        shell("cat /dev/shm/note; ps -o args | grep -c '[s]lurm'", "reader"),
    )
    pod.run()
    assert pod.output("writer").split() == ["pod-host", "65536"]
    assert pod.output("reader").split() == ["hi", "0"]


def test_one_pull_for_many_and_the_store_is_the_users_own(site: Site) -> None:
    folder = f"/shared/cache-{secrets.token_hex(4)}"
    lab("exec", "mkdir", "-m", "1777", folder)
    try:
        image = site.image("busybox:1")
        containers = [shell("true", f"c{number}", image) for number in range(4)]
        pod = site.pod(*containers, cache=folder)
        assert pod.run() == 0, pod.runner_log()
        ids = {pod.record(index)["image_id"] for index in range(4)}
        assert len(ids) == 1
        files = lab("exec", "find", folder, "-name", "*.sif").split()
        assert len(files) == 1
        assert ids.pop().replace(":", "-") in files[0]
        assert lab("exec", "stat", "-c", "%a %U", f"{folder}/slurmrest-adapter-{ALICE}").split() == [
            "700",
            "alice",
        ]
        # What is in the store needs no registry, and Never takes nothing else.
        again = site.pod(
            shell("true", "c0", image, pull_policy="Never"),
            shell("true", "c1", site.image("entry:1"), pull_policy="Never"),
            cache=folder,
        )
        assert again.run() == 125, again.runner_log()
        assert again.record(0)["exit_code"] == 0
        assert again.record(1)["reason"] == "ErrImageNeverPull"
    finally:
        lab("exec", "rm", "-rf", folder)


def test_the_script_of_two_pods_is_the_same(site: Site) -> None:
    scripts = []
    for text in ("echo first-secret", "echo second-secret"):
        pod = site.pod(shell(text, env=(("SECRET", text),)))
        job = pod.submit()
        scripts.append(lab("exec", "scontrol", "write", "batch_script", str(job), "-"))
        pod.wait()
    assert scripts[0] == scripts[1]
    assert "secret" not in scripts[0]
