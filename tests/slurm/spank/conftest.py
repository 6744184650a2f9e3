"""Labs whose slurmd and slurmstepd have the plugin loaded, and a receiver that all test processes share."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.fakes.spank_receiver import read_key
from tests.labs import ROOT, SLURM_LAB

VERSIONS = ("24.11", "26.05")
# Both releases serve it.
API = "v0.0.42"
SOURCES = ROOT / "slurmrest_adapter" / "spank"
OPTION = "_SLURM_SPANK_OPTION_slurmrest_adapter_"
Event = dict[str, Any]
# What a batch job without steps tells of a node.
BATCH = ["allocated", "batch step_start", "batch task_start", "batch task_exit", "batch step_end", "released"]


@dataclass(frozen=True)
class Site:
    """One lab with the plugin."""

    version: str
    env: Mapping[str, str]

    @property
    def root(self) -> Path:
        return Path(self.env["LAB_ROOT"])

    @property
    def url(self) -> str:
        """Where the plugin posts events, as plugstack.conf says it from the start."""
        return self.env["LAB_SPANK_EVENTS"]

    @property
    def key_file(self) -> Path:
        return self.root / "etc/slurm/sra-spank.key"

    @property
    def key(self) -> bytes:
        return read_key(self.key_file)

    @property
    def spool(self) -> Path:
        return self.root / "var/spool/slurmrest-adapter"

    @property
    def records(self) -> Path:
        """One line for each request that the shared receiver got."""
        return Path(self.env["LAB_DIR"]) / "run/spank-events.jsonl"

    def exec(self, *command: str, user: str | None = None, code: int | None = 0) -> str:
        """Run a command inside and return its standard output."""
        who = ["--as", user] if user else []
        done = subprocess.run(
            [SLURM_LAB, "exec", "--name", self.env["LAB_NAME"], *who, *command],
            capture_output=True,
            text=True,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def sbatch(self, *options: str, script: str = "true", user: str = "alice") -> int:
        """Submit a script with sbatch; its id."""
        fixed = ("--parsable", "-A", "physics", "-p", "all", "-o", "/tmp/%j.out", "--chdir=/tmp")
        return int(self.exec("sbatch", *fixed, *options, "--wrap", script, user=user).strip())

    def submit(self, script: str, options: Mapping[str, str], **fields: Any) -> int:
        """Submit by REST with options of ours, both ways, as the translation does; the id."""
        given = [f"{OPTION}{name.replace('-', '_')}={value}" for name, value in options.items()]
        job = {
            "name": "spank",
            "account": "physics",
            "partition": "all",
            "current_working_directory": "/tmp",
            "standard_output": "/tmp/%j.out",
            "environment": ["PATH=/usr/bin:/bin", *given],
            **({"spank_environment": given} if given else {}),
            **fields,
        }
        token = subprocess.run(
            [SLURM_LAB, "token", "--name", self.env["LAB_NAME"], "alice"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        answer = requests.post(
            f"{self.env['LAB_REST']}/slurm/{API}/job/submit",
            json={"script": f"#!/bin/sh\n{script}\n", "job": job},
            headers={"X-SLURM-USER-NAME": "alice", "X-SLURM-USER-TOKEN": token},
            timeout=60,
        )
        answer.raise_for_status()
        return int(answer.json()["job_id"])

    def output(self, job: int) -> str:
        """What a job printed."""
        return (self.root / f"tmp/{job}.out").read_text()

    def received(self) -> list[dict[str, Any]]:
        """All requests so far, to the shared receiver."""
        # What stands behind the last line's end is being written.
        return [json.loads(line) for line in self.records.read_text().split("\n")[:-1]]

    def events(self, job: int) -> list[Event]:
        """The signed events of a job, or of an array's tasks, by their time."""
        signed = [one["event"] for one in self.received() if one["status"] == 204]
        # Prolog and epilog know no array, so its jobs are found by their steps.
        jobs = {job} | {event["job"] for event in signed if event.get("array_job") == job}
        found = [event for event in signed if event["job"] in jobs]
        return sorted(found, key=lambda event: float(event["time"]))

    def story(self, job: int, nodes: int = 1, seconds: float = 120) -> list[Event]:
        """The events of a job once that many nodes have released it."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.events(job)
            if sum(event["event"] == "released" for event in found) >= nodes:
                return found
            assert time.monotonic() < deadline, words(found)
            time.sleep(0.1)

    def state(self, job: int) -> str:
        """A job's state word."""
        return self.exec("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T").strip()

    def until(self, job: int, state: str, seconds: float = 60) -> None:
        """Wait until a job is in that state."""
        deadline = time.monotonic() + seconds
        while (now := self.state(job)) != state:
            assert time.monotonic() < deadline, now
            time.sleep(0.1)

    @contextmanager
    def plugstack(self, line: str) -> Iterator[None]:
        """Another plugstack.conf for a while. What slurmd starts from now on reads it."""
        path = self.root / "etc/slurm/plugstack.conf"
        before = path.read_text()
        path.write_text(line + "\n")
        try:
            yield
        finally:
            path.write_text(before)

    def line(self, **changes: str | None) -> str:
        """The line of the lab's plugstack.conf with other arguments; None takes one out."""
        words = (self.root / "etc/slurm/plugstack.conf").read_text().split()
        arguments = dict(word.split("=", 1) for word in words[2:]) | changes
        return " ".join([*words[:2], *(f"{k}={v}" for k, v in arguments.items() if v is not None)])

    def logged(self) -> list[str]:
        """The lines of the plugin in the logs of all slurmd."""
        logs = sorted((self.root / "var/log/slurm").glob("slurmd-*.log"))
        return [
            line
            for log in logs
            for line in log.read_text(errors="replace").splitlines()
            if "slurmrest_adapter" in line
        ]


def words(events: list[Event]) -> list[str]:
    """The events of one node (or job) in short: "allocated", "batch step_start"."""
    return [f"{event['step']} {event['event']}" if "step" in event else event["event"] for event in events]


def up(version: str) -> Site:
    """A lab with the plugin of this checkout."""
    which = ["--version", version, "--profile", "spank"]
    subprocess.run([SLURM_LAB, "up", *which], check=True, capture_output=True)
    printed = subprocess.run([SLURM_LAB, "env", *which], check=True, capture_output=True, text=True).stdout
    return Site(version, dict(word.split("=", 1) for word in shlex.split(printed)))


@contextmanager
def shared_receiver(site: Site) -> Iterator[None]:
    """Keep the receiver of a lab alive, starting it if no other test process has."""
    lock = site.records.with_suffix(".lock")
    with lock.open("a") as wanted, lock.with_suffix(".start").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(wanted, fcntl.LOCK_SH)
        if not _answers(site.url):
            site.records.touch()
            command = [sys.executable, "-m", "tests.fakes.spank_receiver", site.url, str(site.key_file)]
            process = subprocess.Popen(
                [*command, str(site.records), str(lock)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield


def _answers(url: str) -> bool:
    try:
        return requests.post(url, data=b"", timeout=10).status_code == 403
    except requests.ConnectionError:
        return False


@pytest.fixture(scope="session")
def sites() -> Iterator[dict[str, Site]]:
    """The labs of both releases, each with its receiver."""
    found = {version: up(version) for version in VERSIONS}
    with shared_receiver(found["24.11"]), shared_receiver(found["26.05"]):
        yield found


@pytest.fixture(params=VERSIONS)
def site(request: pytest.FixtureRequest, sites: dict[str, Site]) -> Site:
    """A lab with the plugin, one release after the other."""
    return sites[request.param]


def headers(site: Site) -> Path:
    """The headers of a lab's release, which it has fetched."""
    status = (site.root / "var/lib/dpkg/status").read_text()
    version = status.split("Package: slurmctld\n")[1].split("Version: ")[1].split("-")[0]
    return Path(site.env["LAB_DIR"]).parents[1] / "headers" / version


@pytest.fixture(scope="session", params=VERSIONS)
def include(request: pytest.FixtureRequest, sites: dict[str, Site]) -> Path:
    """The headers of a release."""
    return headers(sites[request.param])


@pytest.fixture(scope="session")
def plugin(include: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin, built against a release's headers."""
    build = tmp_path_factory.mktemp("plugin")
    made = subprocess.run(
        ["make", "-C", str(SOURCES), f"BUILD={build}", f"SLURM_INC={include}"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return build / "slurmrest_adapter.so"


@pytest.fixture(scope="session")
def compiler() -> str:
    """The C compiler that the lab has installed."""
    found = shutil.which("gcc")
    assert found
    return found
