"""A sidecar that is stopped, slow, swallows packets or refuses, and what users' processes see of the plugin.

plugstack.conf is changed here, so these run alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.spank_receiver import Receiver
from tests.slurm.spank.conftest import BATCH, Site, words

pytestmark = [pytest.mark.slurm, pytest.mark.disruptive]
JOBS = 300


@pytest.fixture(autouse=True)
def empty_spool(site: Site) -> None:
    """No events of an earlier test, no mark, no count."""
    for path in site.spool.glob("*"):
        if path.is_file():
            path.unlink(missing_ok=True)  # it may be a name that a job's last process replaces just now


def closed_port() -> int:
    """A port of loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spooled(site: Site) -> list[dict[str, Any]]:
    """The events in the spool, each with a true signature, in the order of a drain.

    A file whose name begins with a dot is being written.
    """
    found = []
    for path in sorted(site.spool.glob("[!.]*.event")):
        signature, body = path.read_bytes().split(b"\n", 1)
        assert signature.decode() == "sha256=" + hmac.new(site.key, body, hashlib.sha256).hexdigest()
        found.append(json.loads(body))
    return found


def await_end(site: Site, jobs: list[int], seconds: float = 300) -> None:
    """Wait until slurmctld has no such job running and all nodes have released theirs."""
    deadline = time.monotonic() + seconds
    listed = ",".join(map(str, jobs))
    while site.exec("squeue", "-h", "-j", listed, "-o", "%i"):
        assert time.monotonic() < deadline
        time.sleep(0.5)


def await_spooled(site: Site, count: int, seconds: float = 60) -> list[dict[str, Any]]:
    """The spool once it has that many events."""
    deadline = time.monotonic() + seconds
    while len(found := spooled(site)) < count:
        assert time.monotonic() < deadline, words(found)
        time.sleep(0.1)
    return found


@contextmanager
def black_hole() -> Iterator[int]:
    """A port whose queue is full: the kernel drops what else comes, as a firewall does."""
    with socket.socket() as server, ExitStack() as waiting:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(8):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(server.getsockname())
        time.sleep(0.2)
        yield server.getsockname()[1]


@pytest.mark.parametrize("site", ["26.05"], indirect=True)  # for time's sake
def test_300_jobs_without_a_sidecar(site: Site) -> None:
    """All complete, and every event of theirs is in the spool, to be delivered later."""
    with site.plugstack(site.line(events=f"http://127.0.0.1:{closed_port()}/spank/v1/events")):
        array = site.sbatch(f"--array=1-{JOBS}", "--mem=1", "--output=/dev/null", script="true")
        await_end(site, [array])
        events = await_spooled(site, JOBS * len(BATCH))
    ended = site.exec("squeue", "-h", "-r", "-t", "all", "-j", str(array), "-o", "%T").split()
    assert Counter(ended) == {"COMPLETED": JOBS}
    by_job: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        by_job.setdefault(event["job"], []).append(event)
    assert len(by_job) == JOBS
    assert all(words(sorted(told, key=lambda e: float(e["time"]))) == BATCH for told in by_job.values())
    assert len({(e["node"], e["stream"], e["seq"]) for e in events}) == JOBS * len(BATCH)
    assert not (site.spool / "dropped").exists()
    with Receiver("http://127.0.0.1:0/x", site.key) as receiver:
        program = str(Path(sys.executable).parent / "slurmrest-adapter")
        to = f"http://127.0.0.1:{receiver.port}/x"
        subprocess.run([program, "spank", "drain", "--to", to, str(site.spool)], check=True)
        assert sorted(map(json.dumps, receiver.events())) == sorted(map(json.dumps, events))
    assert spooled(site) == []


def test_an_address_that_swallows_packets(site: Site) -> None:
    with black_hole() as port, site.plugstack(site.line(events=f"http://127.0.0.1:{port}/x")):
        before = set(site.logged())
        job = site.sbatch(script="true")
        events = await_spooled(site, len(BATCH))
        await_end(site, [job])
    assert words(events) == BATCH
    assert site.state(job) == "COMPLETED"
    lines = [line for line in site.logged() if line not in before]
    # The first event waits, and leaves a mark; the others do not connect at all.
    assert len([line for line in lines if "no answer in time" in line]) == 1, lines
    assert (site.spool / "down").exists()


def test_a_budget_holds_where_no_mark_does(site: Site) -> None:
    """Each process forgets the mark at once; what a job has lost is remembered."""
    with black_hole() as port:
        line = site.line(events=f"http://127.0.0.1:{port}/x", retry_s="1", timeout_ms="60")
        with site.plugstack(line):
            before = set(site.logged())
            job = site.sbatch(script="for i in 1 2 3 4 5; do sleep 1.2; srun true; done")
            events = await_spooled(site, 26, 120)
            await_end(site, [job])
    assert len(events) == 26
    tried = [line for line in set(site.logged()) - before if "no answer in time" in line]
    # 170 ms are three times 60 ms, the last of them cut short.
    assert 2 <= len(tried) <= 3


def test_a_slow_sidecar_loses_nothing(site: Site) -> None:
    with Receiver("http://127.0.0.1:0/x", site.key) as receiver:
        receiver.answer = lambda: (time.sleep(0.05), 204)[1]  # type: ignore[func-returns-value]
        port = receiver.port
        with site.plugstack(site.line(events=f"http://127.0.0.1:{port}/x")):
            job = site.sbatch(script="true")
            await_end(site, [job])
            deadline = time.monotonic() + 30
            while not {"released"} <= {e["event"] for e in (*receiver.events(), *spooled(site))}:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    told = {(e["stream"], e["seq"]): e for e in (*receiver.events(), *spooled(site))}
    assert words(sorted(told.values(), key=lambda e: float(e["time"]))) == BATCH
    assert receiver.events()


def test_it_delivers_again_when_the_sidecar_is_back(site: Site) -> None:
    with Receiver("http://127.0.0.1:0/x", site.key) as receiver:
        receiver.answer = lambda: 503
        with site.plugstack(site.line(events=f"http://127.0.0.1:{receiver.port}/x", retry_s="1")):
            site.sbatch(script="true")
            await_spooled(site, len(BATCH))
            assert (site.spool / "down").exists()
            receiver.answer = lambda: 204
            time.sleep(2.1)
            tried = len(receiver.events())
            site.sbatch(script="true")
            deadline = time.monotonic() + 30
            while len(receiver.events()) < tried + len(BATCH):
                assert time.monotonic() < deadline
                time.sleep(0.1)
    assert not (site.spool / "down").exists()
    assert len(spooled(site)) == len(BATCH)


def test_events_by_a_unix_socket(site: Site) -> None:
    with (
        Receiver(f"unix://{site.env['LAB_SHARED']}/e.sock", site.key) as receiver,
        site.plugstack(site.line(events="unix:///shared/e.sock")),
    ):
        job = site.sbatch(script="true")
        deadline = time.monotonic() + 60
        while words(receiver.events()) != BATCH:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert {event["job"] for event in receiver.events()} == {job}


def test_only_jobs_with_our_option(site: Site) -> None:
    with site.plugstack(site.line(report=None)):
        silent = site.sbatch(script="srun true")
        told = site.sbatch("--pod-uid=told", script="srun true")
        unwanted = site.submit("true", {"pod-uid": "unwanted", "pod-events": "none"})
        events = site.story(told)
        await_end(site, [silent, unwanted])
    # The step of srun has no option of its own.
    assert {event["pod"] for event in events} == {"told"}
    assert "0 step_start" in words(events)
    assert site.events(silent) == []
    assert site.events(unwanted) == []


@pytest.mark.parametrize("site", ["26.05"], indirect=True)  # for time's sake
@pytest.mark.parametrize("bad", ["colour=blue", "cluster=a cluster=b", "spool_max=0"])
def test_a_bad_line_fails_no_job(site: Site, bad: str) -> None:
    with site.plugstack(site.line() + " " + bad):
        before = set(site.logged())
        job = site.sbatch("--pod-uid=a-pod", script="echo fine")
        await_end(site, [job])
        deadline = time.monotonic() + 30
        while site.state(job) != "COMPLETED":
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert site.output(job) == "fine\n"
    assert any(
        bad.split("=")[0] in line and "nothing is reported" in line for line in set(site.logged()) - before
    )
    assert site.events(job) == []


# What a process of the user's can see; bash, as it lists a directory without a process of its own.
LOOK = """
cd /proc/self/fd; echo fds *
echo threads /proc/self/task/*
cat /proc/self/status | grep -E 'Sig[PBIC]|Cap|NoNewPrivs|Groups|Seccomp'
cut -d' ' -f2 /proc/self/maps | sort | uniq -c | sort -n | tail -1 >/dev/null
ulimit -a
umask
pwd
env | grep -vE '^(SLURM_JOB_(ID|START_TIME|END_TIME|SLUID)|SLURM_JOBID|SLURM_TASK_PID|_)=' | sort
"""
STEPD = "for t in /proc/$PPID/task/*/children; do echo children $(wc -w <$t); done"


def test_users_processes_are_as_without_it(site: Site) -> None:
    """Descriptors, threads, signals, rights, limits, variables, siblings: the same with and without it."""
    seen = []
    for line in ("# no plugin", site.line()):
        with site.plugstack(line):
            options = ("-w", "n4", "-p", "cpu", "--job-name=look")
            job = site.sbatch(
                *options, script=f"bash -c '{LOOK.replace(chr(39), chr(34))}'; {STEPD}; srun env | grep -c ."
            )
            await_end(site, [job])
            seen.append((job, _settled(site, job).splitlines()))
    (first, without), (second, with_plugin) = seen
    assert any("SLURM" in line for line in without)
    # The same, or the same but for the job's number, whose digits may stand in other numbers by chance.
    pairs = zip_longest(without, with_plugin, fillvalue="")
    assert [
        (one, other)
        for one, other in pairs
        if one != other and one.replace(str(first), "JOB") != other.replace(str(second), "JOB")
    ] == []


def _settled(site: Site, job: int) -> str:
    path = Path(site.root / f"tmp/{job}.out")
    deadline = time.monotonic() + 30
    while not path.exists() or not path.read_text().strip().splitlines()[-1].isdigit():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # Task ids of threads are pids.
    return "\n".join(
        f"threads {len(line.split()) - 1}" if line.startswith("threads") else line
        for line in path.read_text().splitlines()
    )
