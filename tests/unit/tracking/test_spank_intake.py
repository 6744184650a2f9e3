"""Taking SPANK events: what each is worth, and that none of them changes what is so."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import Unavailable
from slurmrest_adapter.store.base import Stage
from slurmrest_adapter.store.events import SqliteEvents
from slurmrest_adapter.tracking.driver.events import (
    AFTER_END_SECONDS,
    AHEAD_SECONDS,
    RETENTION_SECONDS,
    Intake,
    Outcome,
)
from slurmrest_adapter.tracking.driver.follow import Follower
from slurmrest_adapter.tracking.driver.loop import Loop
from slurmrest_adapter.tracking.driver.submit import submit
from slurmrest_adapter.translate.status import PodStatus
from tests.fakes.clock import BEGIN
from tests.fakes.pods import OTHER_UID, UID, container, pod
from tests.fakes.spank import KEY, body, life, posted
from tests.fakes.world import World, container_record


class Site:
    """A world with the plugin: an intake, and what it hinted at."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.events = SqliteEvents(self.world.state / "events.sqlite3", self.world.clock)
        self.world.deps = replace(self.world.deps, events=self.events)
        self.hints: list[tuple[str, bool]] = []
        self.intake = Intake(
            self.events,
            self.world.deps.store,
            KEY,
            "lab",
            lambda uid, ended: self.hints.append((uid, ended)),
            self.world.clock,
        )

    def post(self, kind: str = "allocated", key: bytes = KEY, **changes: Any) -> Outcome:
        (outcome,) = self.intake.take([posted(kind, key, **changes)])
        return outcome

    def counted(self) -> dict[str, int]:
        return {name: count for name, count in self.intake.counters().items() if count}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def running(site: Site) -> Site:
    submit(site.world.deps, pod())
    site.world.slurm.start(100)
    return site


def everything(site: Site) -> Any:
    """All that is kept and would be shown, but for the counters."""
    store = site.world.deps.store
    return [(record, store.story(record.uid)) for record in store.pods(ended=True)], site.events.of_job(100)


class TestWorthNothingButACounter:
    @pytest.mark.parametrize(
        ("post", "outcome"),
        [
            (lambda site: site.post(key=b"x" * 32), Outcome.FORGED),
            (lambda site: site.intake.take([(body(), "")])[0], Outcome.FORGED),
            (lambda site: site.intake.take([(posted()[0] + b" ", posted()[1])])[0], Outcome.FORGED),
            (lambda site: site.post(v=2), Outcome.MALFORMED),
            (lambda site: site.post(cluster="other"), Outcome.OTHER_CLUSTER),
            (lambda site: site.post(cluster="LAB"), Outcome.OTHER_CLUSTER),
            (lambda site: site.post(time=BEGIN - RETENTION_SECONDS - 1), Outcome.STALE),
            (lambda site: site.post(time=BEGIN + AHEAD_SECONDS + 1), Outcome.STALE),
            (lambda site: site.post(job=999), Outcome.UNKNOWN_JOB),
            # Any user may give any UID: a pod whose job is known has no other job.
            (lambda site: site.post(job=999, pod=UID), Outcome.UNKNOWN_JOB),
            (lambda site: site.post("test", job=None), Outcome.TEST),
        ],
    )
    def test_it_changes_nothing(
        self, running: Site, post: Callable[[Site], Outcome], outcome: Outcome
    ) -> None:
        before = everything(running)
        assert post(running) is outcome
        assert everything(running) == before
        assert running.hints == []
        assert running.counted() == {str(outcome): 1}
        # Only a proved event of our cluster says that a node is heard of.
        assert set(running.events.nodes()) == ({"n1"} if outcome is Outcome.UNKNOWN_JOB else set())

    def test_a_replay(self, running: Site) -> None:
        assert running.post() is Outcome.TAKEN
        before, hints = everything(running), list(running.hints)
        for _ in range(5):
            assert running.post() is Outcome.DUPLICATE
        assert everything(running) == before
        assert running.hints == hints
        assert running.counted() == {"taken": 1, "duplicate": 5}

    def test_an_old_jobs_id_that_came_back(self, running: Site) -> None:
        world = running.world
        world.slurm.end(100)
        while not Follower(world.deps, UID).look().closed:
            world.clock.sleep(1)
        end = int(world.clock())
        assert running.post(time=end + 5.0) is Outcome.TAKEN
        world.clock.sleep(AFTER_END_SECONDS * 2)
        assert running.post(time=end + AFTER_END_SECONDS + 100, seq=2) is Outcome.UNKNOWN_JOB


class TestTaken:
    def test_it_is_kept_and_the_pod_is_looked_at(self, running: Site) -> None:
        assert running.post(gpus=[0]) is Outcome.TAKEN
        assert running.post("released", seq=2) is Outcome.TAKEN
        assert running.hints == [(UID, False), (UID, True)]
        assert len(running.events.of_job(100)) == 2
        assert set(running.events.nodes()) == {"n1"}

    def test_many_at_once_are_one_hint_for_each_pod(self, running: Site) -> None:
        submit(running.world.deps, pod(uid=OTHER_UID, name="other"))
        # The streams of both lives are the same, so they are of two nodes.
        both = [posted(**{**changes, "node": f"n{job}"}) for job in (100, 101) for changes in life(job)]
        assert set(running.intake.take(both)) == {Outcome.TAKEN}
        assert sorted(running.hints) == sorted([(UID, True), (OTHER_UID, True)])

    def test_before_the_submits_answer_was_written(self, site: Site) -> None:
        submit(site.world.deps, pod())
        site.world.deps.store.update(UID, "", "", stage=Stage.SUBMITTING, job_id=None)
        assert site.post(job=555) is Outcome.UNKNOWN_JOB
        assert site.post(job=100, pod=UID) is Outcome.TAKEN
        assert site.hints == [(UID, False)]

    def test_of_a_pod_that_has_ended_it_is_kept_and_nobody_looks(self, running: Site) -> None:
        running.world.deps.store.update(UID, "", "", stage=Stage.ENDED)
        assert running.post("step_end", step="batch") is Outcome.TAKEN
        assert running.hints == []

    def test_what_cannot_be_kept_is_looked_at_all_the_same(
        self, running: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(running.events, "add", full)
        with pytest.raises(OSError, match="disk full"):
            running.post()
        assert running.hints == [(UID, False)]

    def test_what_is_old_is_forgotten(self, running: Site) -> None:
        running.post()
        running.world.clock.sleep(RETENTION_SECONDS + 3600)
        running.intake.tidy()
        assert running.events.of_job(100) == []


class TestLooking:
    def loop(self, site: Site) -> Loop:
        made = Loop(site.world.deps)
        site.intake = Intake(site.events, site.world.deps.store, KEY, "lab", made.hint, site.world.clock)
        return made

    def test_a_glance_sees_what_a_round_would(self, site: Site) -> None:
        for number in range(20):
            submit(site.world.deps, pod(uid=f"{number:08d}-0000-4000-8000-000000000000", name=f"p{number}"))
        loop = self.loop(site)
        loop.round()
        asked: list[list[int]] = []
        real = site.world.slurm.states

        def states(job_ids: Any = None, user: str | None = None) -> Any:
            asked.append(sorted(job_ids))
            return real(job_ids, user)

        site.world.slurm.states = states  # type: ignore[method-assign]
        for job in (103, 107):
            site.world.slurm.start(job)
        uids = {f"0000000{n}-0000-4000-8000-000000000000": False for n in (3, 7)}
        loop.glance(uids)
        assert asked == [[103, 107]]  # one question, for those alone
        for uid in uids:
            seen = loop.seen(uid)
            assert seen is not None
            assert seen.standing.kind == "running"
        assert site.counted() == {"looks": 1}

    def test_a_pod_that_is_not_there_or_has_ended_costs_no_question(self, running: Site) -> None:
        loop = self.loop(running)
        running.world.deps.store.update(UID, "", "", stage=Stage.ENDED)
        running.world.slurm.down = True  # which would be heard of
        loop.glance({UID: True, "nobody": False})

    def test_a_slurm_that_cannot_be_asked_changes_nothing(self, running: Site) -> None:
        loop = self.loop(running)
        loop.round()
        running.world.slurm.down = True
        loop.glance({UID: True})
        seen = loop.seen(UID)
        assert seen is not None
        assert (seen.standing.kind, "could not be asked" in seen.status.message) == ("running", True)

    def test_the_thread_looks_long_before_its_next_round(self, running: Site) -> None:
        """Real time: the round that would see it otherwise is an hour away."""
        loop = Loop(running.world.deps, interval=3600.0)
        running.intake = Intake(
            running.events, running.world.deps.store, KEY, "lab", loop.hint, running.world.clock
        )
        looked, real = threading.Event(), loop.glance

        def glance(hinted: Any) -> None:
            real(hinted)
            seen = loop.seen(UID)
            if seen is not None and seen.standing.ended:
                looked.set()

        loop.glance = glance  # type: ignore[method-assign]
        loop.start()
        try:
            while loop.seen(UID) is None or loop._all_now:
                time.sleep(0.01)
            # The node is first: slurmctld has not called it ended yet.
            running.post("released")
            threading.Timer(0.6, lambda: running.world.slurm.end(100)).start()
            assert looked.wait(60)
        finally:
            loop.stop()
        assert running.counted()["looks"] >= 2

    def test_what_the_node_said_is_shown(self, site: Site) -> None:
        submit(site.world.deps, pod(container(resources={"limits": {"nvidia.com/gpu": 2}})))
        world = site.world
        world.slurm.start(100)
        world.slurm.change(100, gres=(), start_time=None)  # a Slurm that tells neither
        loop = self.loop(site)
        loop.round()
        for changes in life(start=BEGIN + 10, end=BEGIN + 20):
            site.post(**changes)
        loop.glance({UID: False})
        seen = loop.seen(UID)
        assert seen is not None
        assert (seen.status.gpus, seen.status.gpus_from) == ((0, 1), "spank")
        assert (seen.status.start_time, seen.status.start_from) == ("2023-11-14T22:13:30Z", "spank")
        assert seen.observed.events == 6
        # Slurm's own word outweighs it.
        world.slurm.change(100, gres=("gpu:a100:2(IDX:2-3)",), start_time=int(BEGIN) + 9, reason="x")
        world.deps.store.update(UID, "", "", job={})
        status = Follower(world.deps, UID).look().status
        assert (status.gpus, status.gpus_from) == ((2, 3), "slurm")
        assert (status.start_time, status.start_from) == ("2023-11-14T22:13:29Z", "slurm")

    @pytest.mark.parametrize("database", [True, False])
    def test_usage_that_nobody_else_counted(
        self, running: Site, database: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = running.world
        for changes in life():
            running.post(**changes)
        real = world.slurm.accounting

        def accounting(job_id: int, user: str | None = None) -> Any:
            record = real(job_id, user)
            assert record is not None
            return replace(record, cpu_user_seconds=0.0, cpu_system_seconds=0.0, max_rss_mib=None)

        monkeypatch.setattr(world.slurm, "accounting", accounting)
        world.slurm.slurmdbd_down = not database
        world.slurm.end(100)
        follower = Follower(world.deps, UID)
        while not (seen := follower.look()).closed:
            world.clock.sleep(5)
        usage = seen.record.usage
        assert usage["source"] == ("slurmdbd" if database else "observed")
        assert (usage["cpu_used_seconds"], usage["max_rss_mib"]) == (1.5, 3)
        assert set(usage["from_events"]) == {"cpu_used_seconds", "max_rss_mib"}

    def test_slurmdbds_own_count_stands(self, running: Site) -> None:
        for changes in life():
            running.post(**changes)
        running.world.slurm.end(100)
        follower = Follower(running.world.deps, UID)
        while not (seen := follower.look()).closed:
            running.world.clock.sleep(5)
        assert (seen.record.usage["cpu_used_seconds"], seen.record.usage["max_rss_mib"]) == (2.0, 64)
        assert list(seen.record.usage["from_events"]) == []


OUTCOMES = st.sampled_from(
    [("COMPLETED", 0), ("FAILED", 3), ("CANCELLED", 0), ("TIMEOUT", 0), ("OUT_OF_MEMORY", 137)]
)


def lived(
    seed: int, outcome: tuple[str, int], polls: bool, events: bool, drop: float
) -> tuple[PodStatus, Any]:
    """A pod's life as one way of hearing of it shows it: at the end, its status and its account."""
    dice = random.Random(seed)
    with TemporaryDirectory() as directory:
        site = Site(Path(directory))
        world, (word, code) = site.world, outcome
        record = submit(world.deps, pod(container(resources={"limits": {"nvidia.com/gpu": 2}})))
        loop = Loop(world.deps)
        site.intake = Intake(
            site.events, world.deps.store, KEY, "lab",
            lambda uid, ended: loop.glance({uid: ended}), world.clock,
        )  # fmt: skip
        loop.round()
        told = life(start=BEGIN + 10, end=BEGIN + 20)
        ran = container_record(state="running")
        done = {**container_record(code=code), "started_at": BEGIN + 10, "finished_at": BEGIN + 20}
        story: list[Callable[[], object]] = [
            lambda: world.slurm.start(100),
            lambda: world.runner_writes(record, 1, None, ran),
            lambda: world.runner_writes(record, 2, {"exit_code": code}, done),
            lambda: world.slurm.end(100, word, code),
        ]
        late: list[dict[str, Any]] = []
        for number, happens in enumerate(story):
            world.clock.now = BEGIN + 10 * (number + 1)
            happens()
            if polls:
                loop.round()
            if events:
                due = [*late, *told[2 * number : 2 * number + 2]]
                # Shuffled, doubled, delayed; each moment's own last one brings the look.
                due = [one for one in due for _ in range(dice.choice([1, 1, 2]))]
                dice.shuffle(due)
                late = due[: len(due) // 3] if drop or number < 3 else []
                for one in due[len(late) :]:
                    if dice.random() >= drop:
                        site.post(**one)
        if events and not polls:
            site.post("released", time=BEGIN + 21, stream="f" * 16, seq=2)
            known = loop.seen(UID)
            assert known is not None
            assert known.standing.ended  # by events alone
        while not (seen := loop.seen(UID)) or not seen.closed:
            loop.round() if polls else loop.glance({UID: True})
            world.clock.sleep(5)
        return seen.status, {k: v for k, v in seen.record.usage.items() if k != "from_events"}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), OUTCOMES, st.floats(0, 1))
def test_poll_only_events_only_and_both_end_in_the_same_status(
    seed: int, outcome: tuple[str, int], drop: float
) -> None:
    polled = lived(seed, outcome, polls=True, events=False, drop=0)
    assert polled[0].phase == ("Succeeded" if outcome[0] == "COMPLETED" else "Failed")
    assert lived(seed, outcome, polls=False, events=True, drop=0) == polled
    assert lived(seed, outcome, polls=True, events=True, drop=drop) == polled
    assert lived(seed, outcome, polls=True, events=True, drop=1) == polled


def test_an_outage_between_event_and_look(running: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(running.world.deps)
    loop.round()

    def away(*_: object) -> None:
        raise Unavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(running.world.slurm, "states", away)
        running.post("released")
        loop.glance({UID: True})
    running.world.slurm.end(100)
    loop.glance({UID: True})
    seen = loop.seen(UID)
    assert seen is not None
    assert seen.standing.ended
