"""How soon 200 jobs' starts and ends are known: by a poll of ten seconds with events, and by it alone.

Two driver loops follow the same jobs, each with a store and a gateway of its own and the same
interval. One takes the events of the real plugin, the other has none. A job says itself when it
began and ended; when each side knew is the time of the line in its story.
"""

from __future__ import annotations

import contextlib
import random
import shlex
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.lab import USER, slurm_lab
from bench.rounds import Verdict
from slurmrest_adapter.delivery.shared import SharedDelivery
from slurmrest_adapter.domain import spank
from slurmrest_adapter.domain.errors import SlurmError
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.identity.mapfile import MapMapper
from slurmrest_adapter.server.events import EventListener
from slurmrest_adapter.server.listen import bind
from slurmrest_adapter.slurm.build import TokenSettings, build_gateway
from slurmrest_adapter.sources.spank import read_key
from slurmrest_adapter.sources.spankpost import path_of
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.store.events import SqliteEvents
from slurmrest_adapter.store.sqlite import SqliteStore
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.events import Intake
from slurmrest_adapter.tracking.driver.loop import Loop
from slurmrest_adapter.translate.site import Site

LAB = ("--name", "spank-serve", "--profile", "spank", "--port-base", "9400")
JOBS = 200
POLL_SECONDS = 10.0
# Submits, in seconds altogether: several polls, so that no job's start is near one on purpose.
SPREAD_SECONDS = 60.0
RUN_SECONDS = (3.0, 15.0)
PATIENCE_SECONDS = 300.0
MOST = 1 / 5


@dataclass
class Side:
    """One way of knowing."""

    deps: Deps
    loop: Loop

    def known(self, uid: str) -> tuple[float | None, float | None]:
        """When the job was first seen started, and ended; POSIX seconds."""
        started = ended = None
        for line in self.deps.store.story(uid):
            if line.event not in ("slurm", "slurmdbd"):
                continue
            words = line.text.removeprefix("slurmdbd: ").split(" ")[0].split("+")
            if "PENDING" in words:
                continue
            started = started or line.time
            if "RUNNING" not in words and "COMPLETING" not in words:
                ended = ended or line.time
        return started, ended


def run() -> list[Verdict]:
    """The verdicts."""
    slurm_lab("up", *LAB)
    env = dict(word.split("=", 1) for word in shlex.split(slurm_lab("env", *LAB)))
    _defaults(Path(env["LAB_ROOT"]) / "etc/slurm/plugstack.conf")
    with contextlib.ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shared = Path(env["LAB_SHARED"]) / f"bench-{uuid.uuid4().hex}"
        shared.mkdir()
        stack.callback(shutil.rmtree, shared, ignore_errors=True)
        shared.chmod(0o1777)
        events = SqliteEvents(state / "events.sqlite3")
        pushed, polled = (
            stack.enter_context(_side(env, state / name, taken))
            for name, taken in (("pushed", events), ("polled", None))
        )
        stack.enter_context(_listening(env, pushed, events))
        jobs = _submit(pushed, polled, shared.name)
        stack.callback(_end, pushed, list(jobs.values()))
        _wait(lambda: all(None not in side.known(uid) for side in (pushed, polled) for uid in jobs), "an end")
        truth = {uid: _truth(shared, job) for uid, job in jobs.items()}
        counted = events.counters()
    print(
        f"spank: {counted.get('taken', 0)} events of {JOBS} jobs caused {counted.get('looks', 0)} questions"
    )
    return [
        _verdict(word, at, [(pushed.known(uid)[at], polled.known(uid)[at], truth[uid][at]) for uid in jobs])
        for at, word in enumerate(("starts", "ends"))
    ]


def _defaults(plugstack: Path) -> None:
    """The plugin's own times: tests, which share this lab, give it more. Each new job reads the line."""
    words = plugstack.read_text().split()
    plugstack.write_text(" ".join(w for w in words if not w.startswith(("timeout_ms=", "retry_s="))) + "\n")


def _verdict(word: str, at: int, times: Sequence[tuple[float | None, float | None, float]]) -> Verdict:
    pushed = statistics.median((known or 0) - true for known, _, true in times)
    polled = statistics.median((known or 0) - true for _, known, true in times)
    what = f"{word} of {JOBS} jobs known after {pushed:.2f} s with events / {polled:.2f} s by the poll alone"
    return Verdict(f"{what} (each a median)", [pushed / polled], most=MOST)


@contextlib.contextmanager
def _side(env: dict[str, str], state: Path, events: SqliteEvents | None) -> Iterator[Side]:
    state.mkdir()
    gateway = build_gateway(
        [env["LAB_REST"]], TokenSettings("hs256", key_file=env["LAB_JWT_KEY"]), service_user="slurmrest"
    )
    deps = Deps(
        gateway=gateway,
        store=SqliteStore(state / "pods.sqlite3"),
        delivery=SharedDelivery(state, None),
        mapper=MapMapper([], min_uid=0),
        site=Site("lab"),
        script="",
        key=b"k" * 32,
        shared_root=state,
        events=events,
    )
    side = Side(deps, Loop(deps, POLL_SECONDS))
    side.loop.start()
    try:
        yield side
    finally:
        side.loop.stop()
        gateway.close()


@contextlib.contextmanager
def _listening(env: dict[str, str], side: Side, events: SqliteEvents) -> Iterator[None]:
    address = env["LAB_SPANK_EVENTS"]
    key = read_key(Path(env["LAB_ROOT"]) / "etc/slurm/sra-spank.key")
    intake = Intake(events, side.deps.store, key, "lab", side.loop.hint)
    listener = EventListener(bind(address, (), "LAB_SPANK_EVENTS"), path_of(address), intake)
    listener.start()
    try:
        yield
    finally:
        listener.stop()


def _submit(pushed: Side, polled: Side, shared: str) -> dict[str, int]:
    """Both sides are told of each job as soon as Slurm has it; UID → job id."""
    dice = random.Random(1)
    begun, jobs = time.monotonic(), dict[str, int]()
    for number in range(JOBS):
        time.sleep(max(0.0, begun + number * SPREAD_SECONDS / JOBS - time.monotonic()))
        uid = str(uuid.uuid4())
        spec = JobSpec(
            name=f"bench-{uid.replace('-', '')[:12]}",
            comment="bench",
            user=USER,
            account="physics",
            partition="all",
            memory_mib=100,
            time_limit_minutes=10,
            environment={"PATH": "/usr/bin:/bin", **spank.options(uid)},
        )
        job = pushed.deps.gateway.submit(spec, _script(shared, dice.uniform(*RUN_SECONDS))).job_id
        jobs[uid] = job
        for side in (pushed, polled):
            side.deps.store.intend(
                PodRecord(
                    uid=uid, namespace="bench", name=spec.name, cluster="lab", user=USER,
                    stage=Stage.SUBMITTED, spec=asdict(spec), skeleton={"containers": []},
                    directory=uuid.uuid4().hex, created=time.time(), job_id=job,
                )
            )  # fmt: skip
    return jobs


def _script(shared: str, seconds: float) -> str:
    mark = f"date +%s.%N > /shared/{shared}/$SLURM_JOB_ID"
    return f"#!/bin/sh\n{mark}.begun\nsleep {seconds:.2f}\n{mark}.ended\n"


def _truth(shared: Path, job: int) -> tuple[float, float]:
    return tuple(float((shared / f"{job}.{word}").read_text()) for word in ("begun", "ended"))  # type: ignore[return-value]


def _wait(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"bench spank: {what} was not heard of within {PATIENCE_SECONDS:.0f} s")
        time.sleep(1)


def _end(side: Side, jobs: Sequence[int]) -> None:
    for job in jobs:
        with contextlib.suppress(SlurmError):
            side.deps.gateway.cancel(job, USER)
