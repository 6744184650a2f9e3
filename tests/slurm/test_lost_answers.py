"""Submits whose answers get lost, come late or come twice: each pod runs exactly once.

Fifty pods go to the real Slurm through a hostile proxy. Each pod's container says once that it has
started, to a listener that appends one line to a file: a pod that ran twice would leave two.
"""

from __future__ import annotations

import json
import socketserver
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurmrest_adapter.cli.build import build
from slurmrest_adapter.domain.errors import SlurmError
from slurmrest_adapter.domain.jobs import JobInfo
from slurmrest_adapter.domain.states import classify
from slurmrest_adapter.slurm.build import TokenSettings, build_gateway
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.loop import Loop
from slurmrest_adapter.tracking.driver.submit import submit
from tests.fakes.proxy import PASS, Fate, HostileProxy, Treatment
from tests.slurm.conftest import Lab

pytestmark = pytest.mark.slurm
Pods = Callable[..., dict[str, Any]]

READ_SECONDS = 4.0
LOOK_SECONDS = 6.0
# Arrives after the adapter has looked long enough and submitted another one.
OVERTAKEN = Treatment(Fate.LATE, float("inf"))
# What the proxy does to the first submit of a pod, and to how many pods.
FATES = [
    *[Treatment(Fate.SWALLOW)] * 8,
    *[Treatment(Fate.HANG)] * 7,
    *[Treatment(Fate.CUT)] * 2,
    # Arrives when the adapter has given up waiting, and while it looks.
    *[Treatment(Fate.LATE, READ_SECONDS + 1.5)] * 8,
    *[OVERTAKEN] * 8,
    *[Treatment(Fate.TWICE)] * 8,
    *[Treatment(Fate.TWICE_SECOND)] * 9,
]
PODS = 50
THREADS = 12
WAIT_SECONDS = 300  # a limit for a broken lab, no claim about speed


class Starts:
    """Listens for pods and appends what each says to a file, a line for each connection."""

    def __init__(self, path: Path) -> None:
        starts = self
        self.path = path
        path.touch()
        lock = threading.Lock()

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline().decode().split(" ")  # GET /UID HTTP/1.1
                with lock, starts.path.open("a") as file:
                    file.write(line[1].strip("/") + "\n")
                self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok\n")

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 200

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    made = Starts(tmp_path / "starts")
    yield made
    made.close()


def deps_through(lab: Lab, url: str, directory: Path) -> Deps:
    """The driver's surroundings, with slurmrestd behind the proxy and shorter times."""
    config = lab.config()
    config["state_dir"] = str(directory / "state")
    config["slurm"] |= {"endpoints": [url], "timeouts": {"read_s": READ_SECONDS}, "pool": THREADS}
    path = directory / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return replace(build(path), look_for=LOOK_SECONDS)


def create(deps: Deps, pod: dict[str, Any]) -> PodRecord:
    """As a virtual kubelet does it: a create that failed with "try again" is tried again."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            record = submit(deps, pod)
        except SlurmError:
            assert time.monotonic() < deadline
            time.sleep(0.5)
            continue
        assert record.stage is Stage.SUBMITTED
        return record


def test_fifty_pods_run_once_each(lab: Lab, pod: Pods, starts: Starts, tmp_path: Path) -> None:
    assert len(FATES) == PODS
    uids = [str(uuid.uuid4()) for _ in range(PODS)]
    manifests = []
    for number, uid in enumerate(uids):
        made = pod(name=f"{FATES[number].fate.value}-{number}", main=f"wget -qO- {address(starts, uid)}")
        made["metadata"]["uid"] = uid
        manifests.append(made)

    untouched = {uid.replace("-", "")[:12]: fate for uid, fate in zip(uids, FATES, strict=True)}
    gates: dict[str, threading.Event] = defaultdict(threading.Event)

    def decide(method: str, path: str, body: bytes) -> Treatment:
        if not path.endswith("/job/submit"):
            return PASS
        digits = json.loads(body)["job"]["name"][-12:]
        treatment = untouched.pop(digits, None)
        if treatment is None:
            gates[digits].set()  # this is another submit of the same pod
            return PASS
        return replace(treatment, gate=gates[digits]) if treatment == OVERTAKEN else treatment

    with HostileProxy(lab.env["LAB_REST"], decide) as proxy:
        deps = deps_through(lab, proxy.url, tmp_path)
        loop = Loop(deps, one_asker=bool(lab.config()["slurm"].get("service_user")))
        loop.start()
        try:
            with ThreadPoolExecutor(THREADS) as creators:
                list(creators.map(lambda made: create(deps, made), manifests))
            assert untouched == {}
            for uid in uids:
                until(partial(closed, loop, uid))
        finally:
            loop.stop()
        ends = {uid: loop.seen(uid) for uid in uids}
        assert Counter(seen.status.phase for seen in ends.values() if seen) == {"Succeeded": PODS}
        records = [record for uid in uids if (record := deps.store.get(uid))]
        assert len(records) == PODS
        met = Counter(exchange.fate for exchange in proxy.exchanges if exchange.fate is not Fate.PASS)
        assert met == Counter(treatment.fate for treatment in FATES)

    jobs = all_jobs(lab, records)
    # One line for each pod; those of its jobs that came second ended without doing anything.
    assert Counter(starts.lines()) == Counter(uids)
    assert all(job.exit_code.return_code == 0 for found in jobs.values() for job in found)
    copies: dict[Treatment, set[int]] = defaultdict(set)
    for uid, treatment in zip(uids, FATES, strict=True):
        copies[treatment].add(len(jobs[uid]))
    assert copies[Treatment(Fate.TWICE)] == copies[Treatment(Fate.TWICE_SECOND)] == {2}
    assert copies[Treatment(Fate.SWALLOW)] == {1}
    assert copies[OVERTAKEN] == {2}
    # The job that is followed is the one that ran the pod.
    for record in records:
        assert record.changed is not None
        assert record.runner["job"]["id"] == str(record.job_id)


def closed(loop: Loop, uid: str) -> bool:
    seen = loop.seen(uid)
    return seen is not None and seen.closed


def address(starts: Starts, uid: str) -> str:
    return f"http://127.0.0.1:{starts.port}/{uid}"


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def all_jobs(lab: Lab, records: list[PodRecord]) -> dict[str, list[JobInfo]]:
    """UID → every job of the pod's name, once all have ended; found by `squeue`, not by ourselves."""
    gateway = build_gateway([lab.env["LAB_REST"]], TokenSettings("hs256", key_file=lab.env["LAB_JWT_KEY"]))
    names = {record.spec["name"]: record.uid for record in records}
    found: dict[str, list[JobInfo]] = {}

    def ended() -> bool:
        found.clear()
        for line in lab.exec("squeue", "--noheader", "--states=all", "--format=%i|%j").splitlines():
            job_id, _, name = line.partition("|")
            if name in names:
                found.setdefault(names[name], []).append(gateway.job(int(job_id), records[0].user))
        return all(classify(job.states, job.reason).ended for jobs in found.values() for job in jobs)

    until(ended)
    gateway.close()
    return found
