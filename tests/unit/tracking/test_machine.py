"""The machine's promises, over any order of events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slurmrest_adapter.domain.jobs import AccountingRecord, ExitCode, JobInfo
from slurmrest_adapter.domain.states import TERMINAL, Kind, classify
from slurmrest_adapter.tracking.machine import (
    LOOK_AGAIN,
    LOOK_AT_LEAST,
    LOST_AFTER,
    MISSING_TWICE,
    Accounted,
    Command,
    CouldNotAsk,
    DeleteAsked,
    Event,
    JobSeen,
    RunnerSeen,
    StatesAnswered,
    Step,
    Tracked,
    step,
)

NAME = "train-0a1b2c3d4e5f"
NEW = Tracked(7, NAME)


def job(states: str = "RUNNING", **fields: Any) -> JobInfo:
    return JobInfo(7, tuple(states.split()), **{"name": NAME, "submit_time": 100, **fields})


def runner(seq: int = 1, restart: int = 0, **state: Any) -> dict[str, Any]:
    container = {"name": "main", "state": "running", "reason": None, "exit_code": None, **state}
    return {"seq": seq, "job": {"restart": restart}, "containers": [container], "end": None}


def record(states: str = "COMPLETED", **fields: Any) -> AccountingRecord:
    return AccountingRecord(
        7, tuple(states.split()), **{"name": NAME, "submit_time": 100, "end_time": 200, **fields}
    )


def after(*events: Event, start: Tracked = NEW) -> Step:
    move = Step(start)
    for event in events:
        move = step(move.tracked, event)
    return move


def test_the_first_answer_makes_us_look() -> None:
    move = after(StatesAnswered(("PENDING",)))
    assert Command.LOOK in move.commands
    assert move.tracked.standing.kind is Kind.UNKNOWN  # a row is no full answer


def test_a_change_makes_us_look_and_no_change_does_not() -> None:
    running = after(JobSeen(job())).tracked
    assert after(StatesAnswered(("RUNNING",)), start=running).commands == (Command.READ_RUNNER,)
    assert Command.LOOK in after(StatesAnswered(("COMPLETED",)), start=running).commands


def test_a_queued_jobs_reason_is_looked_at_again() -> None:
    fresh = after(JobSeen(job("PENDING", reason="None"))).tracked
    assert after(StatesAnswered(("PENDING",)), start=fresh).commands == (Command.LOOK,)
    move = after(JobSeen(job("PENDING", reason="Resources")))
    looks = 0
    for _ in range(3 * LOOK_AGAIN):
        move = after(StatesAnswered(("PENDING",)), start=move.tracked)
        if Command.LOOK in move.commands:
            looks += 1
            move = after(JobSeen(job("PENDING", reason="Priority")), start=move.tracked)
    assert looks == 3


def test_even_an_unchanged_job_is_looked_at_now_and_then() -> None:
    move = after(JobSeen(job()), *[StatesAnswered(("RUNNING",))] * LOOK_AT_LEAST)
    assert Command.LOOK in move.commands


def test_the_end_closes_once() -> None:
    ended = after(JobSeen(job()), JobSeen(job("FAILED", exit_code=ExitCode(3))))
    assert Command.CLOSE in ended.commands
    again = after(JobSeen(job("FAILED")), StatesAnswered(("FAILED",)), start=ended.tracked)
    assert again.commands == ()


def test_the_gpus_are_remembered_until_the_next_run() -> None:
    gres = ("gpu:a100:2(IDX:0-1)",)
    ended = after(JobSeen(job(gres=gres)), JobSeen(job("COMPLETED", gres=())))
    assert ended.tracked.job is not None
    assert ended.tracked.job.gres == gres
    requeued = after(JobSeen(job(gres=gres)), JobSeen(job("PENDING", gres=(), restart_count=1)))
    assert requeued.tracked.job is not None
    assert requeued.tracked.job.gres == ()


def test_completing_is_no_end() -> None:
    assert not after(JobSeen(job("COMPLETED COMPLETING"))).tracked.ended


def test_gone_takes_two_answers() -> None:
    running = after(JobSeen(job())).tracked
    once = after(StatesAnswered(None), start=running)
    assert once.commands == ()
    twice = after(StatesAnswered(None), start=once.tracked)
    assert Command.ACCOUNT in twice.commands
    back = after(StatesAnswered(("RUNNING",)), StatesAnswered(None), start=once.tracked)
    assert Command.ACCOUNT not in back.commands
    # Not to have been able to ask is no answer.
    away = after(CouldNotAsk("down"), CouldNotAsk("down"), CouldNotAsk("down"), start=once.tracked)
    assert away.commands == ()
    assert away.tracked.missing == 1


def test_a_forgotten_job_ends_from_slurmdbd() -> None:
    gone = after(JobSeen(job(nodes="n1")), StatesAnswered(None), StatesAnswered(None)).tracked
    nothing = after(Accounted(None), start=gone)
    assert not nothing.tracked.ended
    running = after(Accounted(record("RUNNING", end_time=None)), start=gone)
    assert not running.tracked.ended
    done = after(Accounted(record("FAILED", exit_code=ExitCode(3), nodes="n1")), start=gone)
    assert done.tracked.standing.outcome == "FAILED"
    assert Command.CLOSE in done.commands
    assert done.tracked.job is not None
    assert done.tracked.job.exit_code == ExitCode(3)


def test_slurmdbd_ends_no_job_that_slurmctld_still_shows() -> None:
    running = after(JobSeen(job())).tracked
    assert not after(Accounted(record("COMPLETED")), start=running).tracked.ended


def test_unknown_changes_nothing() -> None:
    running = after(JobSeen(job("RUNNING"))).tracked
    for event in (JobSeen(job("ON_FIRE")), StatesAnswered(("ON_FIRE",)), CouldNotAsk("down")):
        assert after(event, start=running).tracked.standing == running.standing
        assert after(event, start=running).tracked.job == running.job
    first = after(JobSeen(job("ON_FIRE")))
    assert first.story == "unknown state ON_FIRE"
    again = after(JobSeen(job("ON_FIRE")), start=first.tracked)
    assert again.story == ""
    assert after(JobSeen(job()), start=again.tracked).tracked.standing.kind is Kind.RUNNING


def test_could_not_ask_is_told_once_and_over_with_the_next_answer() -> None:
    running = after(JobSeen(job())).tracked
    away = after(CouldNotAsk("down"), start=running)
    assert "down" in away.story
    assert after(CouldNotAsk("still down"), start=away.tracked).story == ""
    assert after(StatesAnswered(("RUNNING",)), start=away.tracked).tracked.unreachable == ""


def test_a_requeue_forgets_the_first_runs_containers_for_good() -> None:
    old = runner(seq=9, state="terminated", exit_code=137, reason="Error")
    move = after(JobSeen(job()), RunnerSeen(old), JobSeen(job("PENDING", restart_count=1, submit_time=160)))
    assert move.tracked.runner == {}
    # The first run's file is still there, and read again at every look.
    late = after(RunnerSeen(old), start=move.tracked)
    assert late.tracked.runner == {}
    fresh = after(RunnerSeen(runner(seq=10, restart=1)), start=late.tracked)
    assert fresh.tracked.runner["seq"] == 10


def test_the_second_runs_file_may_come_before_slurms_word() -> None:
    fresh = runner(seq=10, restart=1)
    move = after(JobSeen(job()), RunnerSeen(fresh), JobSeen(job(restart_count=1, submit_time=160)))
    assert move.tracked.runner == fresh


def test_an_older_file_comes_late() -> None:
    move = after(RunnerSeen(runner(seq=5)), RunnerSeen(runner(seq=4, state="waiting")))
    assert move.tracked.runner["seq"] == 5


def test_the_story_tells_what_containers_did() -> None:
    began = after(RunnerSeen(runner(1)))
    assert began.story == "container main running"
    ended = after(RunnerSeen(runner(2, state="terminated", reason="Error", exit_code=3)), start=began.tracked)
    assert ended.story == "container main terminated (Error, exit code 3)"
    assert after(RunnerSeen(ended.tracked.runner), start=ended.tracked).story == ""


def test_a_job_id_that_came_back_as_another_job() -> None:
    stranger = job("COMPLETED", name="theirs", submit_time=5000)
    for start in (NEW, after(JobSeen(job())).tracked):
        move = after(JobSeen(stranger), start=start)
        assert not move.tracked.ended
        assert Command.ACCOUNT in move.commands
        # slurmdbd's latest run of that id is the stranger's too.
        theirs = after(Accounted(record("COMPLETED", name="theirs", submit_time=5000)), start=move.tracked)
        assert not theirs.tracked.ended
        ours = after(Accounted(record("FAILED")), start=move.tracked)
        assert ours.tracked.standing.outcome == "FAILED"


def test_an_older_run_of_the_same_name_is_another_job() -> None:
    second = after(JobSeen(job(restart_count=2))).tracked
    assert after(JobSeen(job("COMPLETED", restart_count=1)), start=second).tracked.standing == second.standing


def test_a_renamed_job_is_still_ours() -> None:
    running = after(JobSeen(job())).tracked
    assert after(JobSeen(job("COMPLETED", name="mine")), start=running).tracked.ended


def test_deletion_is_told_once() -> None:
    first = after(DeleteAsked())
    assert first.tracked.deleting
    assert first.story
    assert after(DeleteAsked(), start=first.tracked).story == ""


STATES = st.sampled_from(
    ["PENDING", "RUNNING CONFIGURING", "RUNNING", "RUNNING COMPLETING", "ON_FIRE", "SUSPENDED"]
)
ENDS = st.sampled_from(sorted(TERMINAL))


class Lifetimes(RuleBasedStateMachine):
    """One run: any of its answers, in any order, any number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.tracked = NEW
        self.end: str | None = None
        self.seen: list[Event] = []

    def take(self, event: Event) -> None:
        before = self.tracked
        self.tracked = step(before, event).tracked
        self.seen.append(event)
        if before.ended:
            assert self.tracked.standing == before.standing
            assert self.tracked.job == before.job
        if isinstance(event, CouldNotAsk | DeleteAsked | RunnerSeen | StatesAnswered):
            assert self.tracked.standing == before.standing
        if isinstance(event, RunnerSeen):
            assert self.tracked.runner.get("seq", 0) >= before.runner.get("seq", 0)

    @rule(states=STATES, restart=st.integers(0, 2))
    def seen_alive(self, states: str, restart: int) -> None:
        self.take(JobSeen(job(states, restart_count=restart)))

    @rule(word=ENDS)
    def seen_ended(self, word: str) -> None:
        self.end = self.end or word
        self.take(JobSeen(job(self.end, restart_count=2)))

    @rule(states=STATES | ENDS)
    def polled(self, states: str) -> None:
        self.take(StatesAnswered(tuple(states.split())))

    @rule()
    def polled_without(self) -> None:
        self.take(StatesAnswered(None))

    @rule()
    def outage(self) -> None:
        self.take(CouldNotAsk("down"))

    @rule()
    def deletion(self) -> None:
        self.take(DeleteAsked())

    @rule(seq=st.integers(0, 9), restart=st.integers(0, 2))
    def runner_wrote(self, seq: int, restart: int) -> None:
        self.take(RunnerSeen(runner(seq, restart)))

    @rule(word=ENDS)
    def accounted(self, word: str) -> None:
        was_gone = self.tracked.missing >= MISSING_TWICE
        before = self.tracked.ended
        self.take(Accounted(record(self.end or word)))
        assert self.tracked.ended == (before or was_gone)

    @rule()
    def strangers(self) -> None:
        before = self.tracked.standing
        self.take(JobSeen(job("COMPLETED", name="theirs", submit_time=9999)))
        self.take(Accounted(record("COMPLETED", name="theirs", submit_time=9999)))
        assert self.tracked.standing == before

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def again(self, data: st.DataObject) -> None:
        self.take(data.draw(st.sampled_from(self.seen)))

    @invariant()
    def an_end_has_a_job_and_an_outcome(self) -> None:
        if self.tracked.ended:
            assert self.tracked.job is not None
            assert self.tracked.standing.outcome in TERMINAL
        if self.tracked.job is not None:
            assert self.tracked.job.name == NAME or self.tracked.job.submit_time == 100


TestLifetimes = Lifetimes.TestCase
TestLifetimes.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


HISTORY: list[Event] = [
    JobSeen(job("PENDING", reason="Resources")),
    JobSeen(job("RUNNING", nodes="n1")),
    RunnerSeen(runner(1, state="waiting")),
    RunnerSeen(runner(2)),
    JobSeen(job("COMPLETED COMPLETING", nodes="n1")),
    RunnerSeen(runner(3, state="terminated", reason="Error", exit_code=3)),
]
END = JobSeen(job("FAILED", nodes="n1", exit_code=ExitCode(3)))


@given(st.permutations(HISTORY), st.lists(st.sampled_from(HISTORY), max_size=4), st.sets(st.integers(0, 5)))
def test_poll_only_push_only_and_both_end_alike(
    order: list[Event], doubled: list[Event], dropped: set[int]
) -> None:
    """However the news came, the end and the runner's last word give the same final state."""
    ended = after(*HISTORY, END).tracked
    pushed = [event for index, event in enumerate(order + doubled) if index not in dropped]
    polled = [StatesAnswered(("RUNNING",)), StatesAnswered(("FAILED",))]
    for events in ([*pushed, END], [*polled, END], [*polled, *pushed, END], [END, *pushed, *polled]):
        final = after(*events, HISTORY[-1]).tracked
        assert replace(final, unlooked=0) == replace(ended, unlooked=0)
        assert final.standing == classify(["FAILED"])


GONE = StatesAnswered(None)


def test_gone_everywhere_is_lost_after_a_while() -> None:
    move = after(JobSeen(job()), GONE, GONE)
    for _ in range(LOST_AFTER - 1):
        move = step(move.tracked, Accounted(None))
        assert not move.tracked.ended
    # "Could not ask" in between neither counts nor resets.
    move = step(move.tracked, Accounted(None, answered=False))
    assert not move.tracked.ended
    move = step(move.tracked, Accounted(None))
    assert move.tracked.standing.outcome == "LOST"
    assert Command.CLOSE in move.commands


def test_a_forgotten_job_ends_by_its_runners_word() -> None:
    ended = {**runner(2, state="terminated", reason="Completed", exit_code=0), "end": {"exit_code": 0}}
    move = after(JobSeen(job()), RunnerSeen(ended), GONE, GONE, Accounted(None))
    assert move.tracked.standing.outcome == "COMPLETED"
    # slurmdbd may know why; while it cannot be asked, nothing is decided.
    move = after(JobSeen(job()), RunnerSeen(ended), GONE, GONE, Accounted(None, answered=False))
    assert not move.tracked.ended
    failed = {**ended, "end": {"exit_code": 3}}
    move = after(JobSeen(job()), RunnerSeen(failed), GONE, GONE, Accounted(None))
    assert move.tracked.standing.outcome == "FAILED"
    # While slurmctld still shows the job its word counts, not the runner's.
    move = after(JobSeen(job()), RunnerSeen(ended), GONE, Accounted(None))
    assert not move.tracked.ended
