"""What the pod runner's benchmarks do on a node, inside the lab as the job's user; imports nothing of ours.

``python3 on_node.py TASK SPEC``: the spec is JSON, and so is what is printed. The runner is the real job
script, started as slurmstepd starts it: by its shell, with the job's environment.
"""

from __future__ import annotations

import glob
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PATIENCE = 120  # seconds; for a broken lab, no claim about speed
_FIFO = "fifo"
_STORE = "/var/tmp/slurmrest-adapter-{}"  # where the runner keeps images, unless the site says otherwise


class Node:
    """One node, as the job's user has it; `base` is a directory of that user's own."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.base: str = spec["base"]
        self.fifo = os.path.join(self.base, _FIFO)
        if not os.path.exists(self.fifo):
            os.mkfifo(self.fifo)
        self._told = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._told, selectors.EVENT_READ)

    @contextmanager
    def pod(self, plan: dict[str, Any]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
        """A pod of this plan: its directory and its batch process, which is waited for at the end."""
        folder = tempfile.mkdtemp(prefix="pod-", dir=self.base)
        with open(os.path.join(folder, "plan.json"), "w") as stream:
            json.dump(plan, stream)
        environ = {**_environ(), "SRA_POD_DIR": folder, "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "bench"}
        process = subprocess.Popen(["/bin/sh", self.spec["script"]], env=environ, cwd="/")
        try:
            yield folder, process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(_PATIENCE)
        shutil.rmtree(folder)

    def image(self, plan: dict[str, Any]) -> str:
        """Run the plan once, which brings its image onto the node; where that is."""
        with self.pod(plan) as (folder, process):
            assert process.wait(_PATIENCE) == 0, _words(folder)
            digest = _status(folder)["containers"][0]["image_id"]
            self.hear()
        store = _STORE.format(os.getuid())
        return os.path.join(store, digest.replace(":", "-") + ".sif")

    def hear(self) -> None:
        """Wait for a word of a container on the FIFO."""
        assert self._selector.select(_PATIENCE), "no container said a word"
        os.read(self._told, 4096)

    def apptainer(self, image: str, script: str) -> list[str]:
        """A bare call of Apptainer; the FIFO is where the pods have it too."""
        return ["apptainer", "exec", "-B", self.base + ":/bench", image, "/bin/sh", "-c", script]


def start(node: Node) -> Any:
    """From the job's first instruction to the container's; the ratios of the rounds."""
    plan, image = node.spec["plan"], node.image(node.spec["plan"])
    script = plan["containers"][0]["command"][-1]

    def ours() -> float:
        begun = time.perf_counter()
        with node.pod(plan):
            node.hear()
            return time.perf_counter() - begun

    def bare() -> float:
        begun = time.perf_counter()
        with subprocess.Popen(node.apptainer(image, script), env=_environ()):
            node.hear()
            return time.perf_counter() - begun

    return _rounds(ours, bare, node.spec["rounds"])


def many(node: Node) -> Any:
    """A pod of many containers to its end, and a shell loop; the ratios of the rounds."""
    plan, number = node.spec["plan"], len(node.spec["plan"]["containers"])
    first = {
        **plan,
        "containers": [{**plan["containers"][0], "command": ["/bin/sh", "-c", "echo >/bench/fifo"]}],
    }
    image = node.image(first)
    loop = f'n=0; while [ $n -lt {number} ]; do "$@" & n=$((n+1)); done; wait'
    argv = ["/bin/sh", "-c", loop, "loop", *node.apptainer(image, plan["containers"][0]["command"][-1])]

    def ours() -> float:
        begun = time.perf_counter()
        with node.pod(plan) as (folder, process):
            assert process.wait(_PATIENCE) == 0, _words(folder)
            return time.perf_counter() - begun

    def bare() -> float:
        begun = time.perf_counter()
        subprocess.run(argv, env=_environ(), check=True)
        return time.perf_counter() - begun

    return _rounds(ours, bare, node.spec["rounds"])


def logs(node: Node) -> Any:
    """A container that writes much, and the same piped into a file: time ratios, and growth of memory."""
    plan = node.spec["plan"]
    script = plan["containers"][0]["command"][-1]
    first = {
        **plan,
        "containers": [{**plan["containers"][0], "command": ["/bin/sh", "-c", "echo >/bench/fifo"]}],
    }
    image = node.image(first)
    target = os.path.join(node.base, "control")
    growth: list[float] = []

    def ours() -> float:
        begun = time.perf_counter()
        with node.pod(plan) as (folder, process):
            node.hear()
            at_first = most = _resident(process.pid)
            while process.poll() is None:
                most = max(most, _resident(process.pid))
                time.sleep(0.05)
            taken = time.perf_counter() - begun
            assert process.returncode == 0, _words(folder)
            growth.append(most / at_first)
            _check_log(os.path.join(folder, "logs", "c0", "0.log"), node.spec)
            return taken

    def bare() -> float:
        begun = time.perf_counter()
        with open(target, "wb") as stream:
            producer = subprocess.Popen(node.apptainer(image, script), env=_environ(), stdout=subprocess.PIPE)
            subprocess.run(["cat"], stdin=producer.stdout, stdout=stream, check=True)
            assert producer.wait(_PATIENCE) == 0
        taken = time.perf_counter() - begun
        assert os.path.getsize(target) == node.spec["bytes"]
        os.unlink(target)
        node.hear()
        return taken

    return {"ratios": _rounds(ours, bare, node.spec["rounds"]), "growth": growth}


def _check_log(path: str, spec: dict[str, Any]) -> None:
    """Every line must have gone through the log, or something else was measured.

    What was put away has been removed but for the last files; their numbers tell how many there were.
    """
    end = b" stdout F " + spec["line"].encode() + b"\n"
    length = len("2026-01-02T03:04:05.000000006Z") + len(end)
    aside = glob.glob(glob.escape(path) + ".*")
    numbers = sorted(int(one.rpartition(".")[2]) for one in aside)
    assert len(numbers) == spec["files"] - 1, numbers
    most = numbers[-1] * spec["size"] + os.path.getsize(path)
    assert most >= spec["bytes"] // (len(spec["line"]) + 1) * length, numbers
    # A file is put away when what comes next would be too much for it.
    assert all(spec["size"] - spec["batch"] <= os.path.getsize(one) <= spec["size"] for one in aside)
    with open(path, "rb") as stream:
        stream.seek(-length, os.SEEK_END)
        assert stream.read().endswith(end)


def idle(node: Node) -> Any:
    """What the runner's own processes cost beside idle containers: shares of a core and PSS ratios."""
    shares, ratios = [], []
    with node.pod(node.spec["plan"]) as (folder, process):
        _until(lambda: _states(folder) == {"running"})
        pause = "import signal; signal.pause()"
        with subprocess.Popen(["python3", "-c", pause], env=_environ()) as control:
            try:
                time.sleep(node.spec["settle"])
                for _ in range(node.spec["rounds"]):
                    own = _own(process.pid)
                    begun, used = time.monotonic(), _cpu(own)
                    time.sleep(node.spec["window"])
                    shares.append((_cpu(own) - used) / (time.monotonic() - begun))
                    ratios.append(sum(map(_pss, own)) / _pss(control.pid))
                parts = [[_fields(pid)["Name"], _pss(pid)] for pid in own]
            finally:
                control.terminate()
    return {"shares": shares, "ratios": ratios, "parts": parts}


def _environ() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME", "USER", "LANG")}


def _rounds(ours: Callable[[], float], bare: Callable[[], float], rounds: int) -> list[float]:
    """Ours over the control's, by turns, after one of each that is not counted."""
    ours()
    bare()
    found = []
    for number in range(rounds):
        if number % 2:
            second = bare()
            found.append(ours() / second)
        else:
            first = ours()
            found.append(first / bare())
    return found


def _status(folder: str) -> dict[str, Any]:
    with open(os.path.join(folder, "status.json")) as stream:
        found: dict[str, Any] = json.load(stream)
        return found


def _states(folder: str) -> set[str]:
    try:
        return {one["state"] for one in _status(folder)["containers"]}
    except OSError:
        return set()


def _words(folder: str) -> str:
    with open(os.path.join(folder, "runner.log")) as stream:
        return stream.read() + json.dumps(_status(folder))


def _until(question: Callable[[], bool]) -> None:
    until = time.monotonic() + _PATIENCE
    while not question():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def _own(pid: int) -> list[int]:
    """The batch process and all below it but the containers' programs, which are number 2 in theirs."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            children.setdefault(int(_fields(int(name))["PPid"]), []).append(int(name))
        except OSError:
            continue
    found, queue = [], [pid]
    depth = len(_fields(pid)["NSpid"].split()) if os.path.exists(f"/proc/{pid}") else 0
    while queue:
        one = queue.pop()
        try:
            fields = _fields(one)
        except OSError:  # it has ended
            continue
        numbers = fields["NSpid"].split()
        if one != pid and numbers[-1] == "2" and len(numbers) > depth + 1:
            continue
        if not fields["State"].startswith("Z"):  # the shell's writer of the here-document
            found.append(one)
        queue += children.get(one, [])
    return found


def _fields(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status") as stream:
        return dict(line.rstrip("\n").split(":\t", 1) for line in stream if ":\t" in line)


def _resident(pid: int) -> int:
    """The resident KiB of the runner's own processes together."""
    total = 0
    for one in _own(pid):
        try:
            total += int(_fields(one).get("VmRSS", "0 kB").split()[0])
        except OSError:
            continue
    return total


def _pss(pid: int) -> int:
    """A process's proportional set size in KiB: shared pages count in equal parts to who shares them."""
    with open(f"/proc/{pid}/smaps_rollup") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("Pss:"))


def _cpu(pids: list[int]) -> float:
    """Seconds on a processor, all together."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/schedstat") as stream:
            total += int(stream.read().split()[0])
    return total / 1e9


def main() -> None:
    """Do one task."""
    tasks: dict[str, Callable[[Node], Any]] = {"start": start, "many": many, "logs": logs, "idle": idle}
    print(json.dumps(tasks[sys.argv[1]](Node(json.loads(sys.argv[2])))))


if __name__ == "__main__":
    main()
