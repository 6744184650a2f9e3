"""What the SPANK plugin costs a job, by its own clock: with a sidecar, and with one that never answers.

The plugin says in slurmd's log how many microseconds each of its processes has spent (prolog, slurmstepd,
epilog); a job's cost on its node is their sum. The sidecar is the real listener with a real store.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.lab import USER, slurm_lab
from bench.rounds import Verdict
from slurmrest_adapter.server.events import EventListener
from slurmrest_adapter.server.listen import bind
from slurmrest_adapter.sources.spank import read_key
from slurmrest_adapter.sources.spankpost import path_of
from slurmrest_adapter.store.events import SqliteEvents
from slurmrest_adapter.store.sqlite import SqliteStore
from slurmrest_adapter.tracking.driver.events import Intake

LAB = ("--name", "spank-cost", "--profile", "spank", "--port-base", "9600")
JOBS = 20
ROUNDS = 3
# One at a time: what is measured is the plugin, and not other jobs' wait for two cores.
AT_ONCE = 1
MEAN_MS = 5.0
MOST_MS = 200.0
PATIENCE_SECONDS = 300.0
LINE = re.compile(r"slurmrest_adapter: job (\d+) (\w+) on (\w+): .* (\d+) us$")
PARTS = 3  # prolog, batch step, epilog


def run() -> list[Verdict]:
    """The verdicts."""
    slurm_lab("up", *LAB)
    up, away = list[list[float]](), list[list[float]]()
    try:
        env = dict(word.split("=", 1) for word in shlex.split(slurm_lab("env", *LAB)))
        for _ in range(ROUNDS):
            with _listening(env):
                up.append(_costs(env))
            with _swallowing(env):
                away.append(_costs(env))
    finally:
        slurm_lab("down", *LAB[:2])
    print(f"spank-cost: with the sidecar up {_spread(up)}")
    print(f"spank-cost: while packets are swallowed {_spread(away)}")
    means, worst = [statistics.mean(each) for each in up], [max(each) for each in away]
    return [
        Verdict(
            f"mean of {JOBS} jobs with the sidecar up, {statistics.median(means):.2f} ms / {MEAN_MS:g} ms",
            [mean / MEAN_MS for mean in means],
            most=1.0,
        ),
        Verdict(
            f"worst of {JOBS} jobs while packets are swallowed, {max(worst):.1f} ms / {MOST_MS:g} ms",
            [most / MOST_MS for most in worst],
            most=1.0,
        ),
    ]


def _spread(rounds: list[list[float]]) -> str:
    costs = [cost for each in rounds for cost in each]
    return (
        f"a job costs {statistics.mean(costs):.2f} ms (mean), {statistics.median(costs):.2f} ms (median), "
        f"{min(costs):.2f} to {max(costs):.2f} ms"
    )


@contextlib.contextmanager
def _listening(env: dict[str, str]) -> Iterator[None]:
    address = env["LAB_SPANK_EVENTS"]
    key = read_key(Path(env["LAB_ROOT"]) / "etc/slurm/sra-spank.key")
    with tempfile.TemporaryDirectory() as state:
        events, store = (
            SqliteEvents(Path(state) / "events.sqlite3"),
            SqliteStore(Path(state) / "pods.sqlite3"),
        )
        listener = EventListener(
            bind(address, (), "LAB_SPANK_EVENTS"),
            path_of(address),
            Intake(events, store, key, "lab", lambda *_: None),
        )
        listener.start()
        try:
            yield
        finally:
            listener.stop()


@contextlib.contextmanager
def _swallowing(env: dict[str, str]) -> Iterator[None]:
    """Point the plugin to a port whose queue is full; the mark is forgotten after a second, so that most jobs
    find out anew."""
    plugstack = Path(env["LAB_ROOT"]) / "etc/slurm/plugstack.conf"
    before = plugstack.read_text()
    with socket.socket() as server, contextlib.ExitStack() as waiting:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(8):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(server.getsockname())
        swallowed = f"http://127.0.0.1:{server.getsockname()[1]}/"
        plugstack.write_text(before.strip().replace(env["LAB_SPANK_EVENTS"], swallowed) + " retry_s=1\n")
        try:
            yield
        finally:
            plugstack.write_text(before)


def _costs(env: dict[str, str]) -> list[float]:
    """Milliseconds of each of `JOBS` new jobs."""
    _forget(env)
    log = Path(env["LAB_ROOT"]) / "var/log/slurm/slurmd-n4.log"
    begun = log.stat().st_size
    options = ("--parsable", "-A", "physics", "-p", "cpu", "-w", "n4", "-t", "5", "-o", "/dev/null")
    slurm_lab(
        *("exec", *LAB[:2], "--as", USER, "sbatch", *options),
        *(f"--array=1-{JOBS}%{AT_ONCE}", "--wrap", "sleep 0.2"),
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        # Nothing but the log is looked at: a question to Slurm would be work beside the measured one.
        with log.open() as file:
            file.seek(begun)
            spent = _spent(file)
        if len(spent) == JOBS:
            return spent
        if time.monotonic() > deadline:
            raise SystemExit(
                f"bench spank-cost: {len(spent)} of {JOBS} jobs ended in {PATIENCE_SECONDS:.0f} s"
            )
        time.sleep(1)


def _forget(env: dict[str, str]) -> None:
    """The spool as it is on a node that never missed the sidecar: no event, no mark that it is down."""
    for left in (Path(env["LAB_ROOT"]) / "var/spool/slurmrest-adapter").iterdir():
        if left.is_file():
            left.unlink()


def _spent(lines: Iterable[str]) -> list[float]:
    """Milliseconds of the jobs of which all parts have been told."""
    parts: dict[str, list[int]] = {}
    for line in lines:
        found = LINE.search(line)
        if found:
            parts.setdefault(found[1], []).append(int(found[4]))
    return [sum(each) / 1000 for each in parts.values() if len(each) == PARTS]
