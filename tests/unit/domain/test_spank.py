"""What events of a run say together, in whatever order they came."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain import spank
from slurmrest_adapter.domain.spank import Observed, observed
from tests.fakes.spank import event, life

EVENTS = [event(**changes) for changes in life()]
WHOLE = Observed(
    node="n1",
    started=1_700_000_010,
    ended=1_700_000_020,
    gpus=(0, 1),
    cpu_s=1.5,
    peak_bytes=3 << 20,
    events=6,
)


@given(st.permutations(EVENTS))
def test_the_order_does_not_matter(order: list[Any]) -> None:
    assert observed(order) == WHOLE


def test_nothing_says_nothing() -> None:
    assert observed([]) == spank.NOTHING == Observed()


@given(st.sets(st.integers(0, 5)))
def test_what_was_dropped_is_not_made_up(kept: set[int]) -> None:
    seen = observed([EVENTS[index] for index in kept])
    assert seen.events == len(kept)
    assert (seen.cpu_s is not None) == (4 in kept)
    assert seen.ended == max((EVENTS[index].time for index in kept if index in (4, 5)), default=None)
    assert (seen.started is None) == (not kept & {0, 1, 2})


def test_an_earlier_run_is_not_mixed_in() -> None:
    again = [
        event(**{**changes, "time": changes["time"] + 100, "stream": "d" * 16, "seq": number})
        for number, changes in enumerate(life()[:3], 1)
    ]
    seen = observed([*EVENTS, *again])
    assert (seen.started, seen.ended, seen.cpu_s, seen.events) == (1_700_000_110, None, None, 3)


def test_a_run_on_another_node_is_another_run() -> None:
    other = event("allocated", node="n2", time=1_700_000_100.0, gpus=[3])
    seen = observed([*EVENTS, other])
    assert (seen.node, seen.gpus, seen.started, seen.ended) == ("n2", (3,), 1_700_000_100.0, None)


def test_another_job_that_had_the_id_is_not_mixed_in() -> None:
    assert observed(EVENTS, submit_time=1_700_009_000) == spank.NOTHING
    # Clocks differ by some seconds.
    assert observed(EVENTS, submit_time=1_700_000_040) == WHOLE


def test_steps_are_added_up_once_each() -> None:
    srun = [
        event(
            "step_end",
            step=step,
            seq=9 + n,
            stream="e" * 16,
            cpu_s=2.0,
            peak_bytes=peak,
            time=1_700_000_015.0,
        )
        for n, (step, peak) in enumerate([("0", 9 << 20), ("1", 1 << 20), ("0", 9 << 20)])
    ]
    seen = observed([*EVENTS, *srun])
    assert (seen.cpu_s, seen.peak_bytes) == (5.5, 9 << 20)


@pytest.mark.parametrize(
    ("told", "gpus"),
    [
        ([("allocated", "", [1, 0]), ("step_start", "batch", [0])], (0, 1)),
        ([("step_start", "0", [0]), ("step_start", "batch", [0, 2])], (0, 2)),
        ([("allocated", "", [])], ()),
        ([("allocated", "", None)], None),
    ],
)
def test_the_jobs_own_gpus_count_before_a_steps(told: list[Any], gpus: Any) -> None:
    events = [
        event(kind, step=step or None, gpus=each, seq=n + 1, time=1_700_000_010.0 + n)
        for n, (kind, step, each) in enumerate(told)
    ]
    assert observed(events).gpus == gpus


def test_what_ends_a_job() -> None:
    assert event("released").ends
    assert event("step_end", step="batch").ends
    assert not event("step_end", step="0").ends
    assert not event("task_exit", step="batch").ends


@pytest.mark.parametrize("uid", ["", "a b", "a\n", "x" * 65, "é", "a;b", "a=b"])
def test_a_uid_that_the_plugin_would_not_take_is_not_sent(uid: str) -> None:
    assert spank.options(uid) == {}


def test_the_options_name() -> None:
    assert spank.options("0a1b-2c") == {"_SLURM_SPANK_OPTION_slurmrest_adapter_pod_uid": "0a1b-2c"}
