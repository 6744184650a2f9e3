"""Which way the states of many jobs are asked for."""

from __future__ import annotations

from typing import Any

import pytest
import responses
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.slurm.bulk import FILTER_AT_MOST, TRY_AGAIN, Chooser, Way, chunks
from slurmrest_adapter.slurm.gateway import Gateway
from slurmrest_adapter.slurm.session import Session
from slurmrest_adapter.slurm.tokens import StaticToken
from tests.fakes.clock import FakeClock

BASE = "http://slurm.test:6820"
V = f"{BASE}/slurm/v0.0.42"


@given(st.integers(0, 5000))
def test_chunks_hold_each_id_once(count: int) -> None:
    ids = list(range(1, count + 1))
    parts = list(chunks(ids))
    assert [job_id for part in parts for job_id in part] == ids
    assert all(0 < len(part) <= FILTER_AT_MOST for part in parts)
    assert len(parts) == -(-count // FILTER_AT_MOST)


def ask(chooser: Chooser, count: int, cost_of_all: float, cost_of_each: float) -> Way:
    way = chooser.choose(count)
    chooser.took(way, count, cost_of_all if way is Way.ALL else cost_of_each * count)
    return way


@pytest.mark.parametrize(
    ("cost_of_all", "cost_of_each", "cheaper"),
    [(0.013, 0.00002, Way.ALL), (1.3, 0.00002, Way.CHUNKS)],
)
def test_both_are_tried_and_the_cheaper_one_taken(
    cost_of_all: float, cost_of_each: float, cheaper: Way
) -> None:
    chooser = Chooser()
    ways = [ask(chooser, 1000, cost_of_all, cost_of_each) for _ in range(2 * TRY_AGAIN)]
    assert set(ways[:2]) == set(Way)
    assert set(ways[2 : TRY_AGAIN - 1]) == {cheaper}
    assert ways.count(cheaper) >= len(ways) - 3  # the other one is tried again now and then


def test_the_number_of_ids_decides_too() -> None:
    chooser = Chooser()
    for _ in range(2):
        ask(chooser, 1000, 0.1, 0.00005)
    assert chooser.choose(500) is Way.CHUNKS
    assert chooser.choose(5000) is Way.ALL


def test_a_cluster_that_fills_turns_it_round() -> None:
    chooser = Chooser()
    for _ in range(TRY_AGAIN):
        ask(chooser, 1000, 0.013, 0.00005)
    ways = [ask(chooser, 1000, 1.3, 0.00005) for _ in range(2 * TRY_AGAIN)]
    assert ways[-2] is Way.CHUNKS


class Slurmctld:
    """Answers for the ids that it is asked for, or for all; each answer takes its time."""

    def __init__(self, clock: FakeClock, jobs: int, cost_of_all: float, cost_of_filter: float) -> None:
        self._clock = clock
        self._jobs = jobs
        self._costs = (cost_of_all, cost_of_filter)
        self.asked: list[int] = []

    def __call__(self, request: Any) -> tuple[int, dict[str, str], str]:
        given = request.params.get("job_id") or []
        ids = [int(i) for i in ([given] if isinstance(given, str) else given)]
        self.asked.append(len(ids))
        self._clock.sleep(self._costs[bool(ids)])
        shown = [i for i in ids if i <= self._jobs] or ([] if ids else range(1, self._jobs + 1))
        rows = ",".join(f'{{"job_id":"{i}","state":["RUNNING"]}}' for i in shown)
        return 200, {"Content-Type": "application/json"}, f'{{"jobs":[{rows}]}}'


@pytest.mark.parametrize(
    ("wanted", "cost_of_all", "later"),
    [
        (1, 9.0, [1]),
        (400, 9.0, [400]),
        (401, 0.01, [0]),
        (401, 9.0, [201, 200]),
        (1000, 9.0, [334, 334, 332]),
    ],
)
def test_the_gateway_asks_the_cheaper_way(wanted: int, cost_of_all: float, later: list[int]) -> None:
    clock = FakeClock()
    slurmctld = Slurmctld(clock, 3000, cost_of_all, 0.05)
    room = Gateway(Session([BASE]), StaticToken("t"), api_version="v0.0.42", clock=clock, sleep=clock.sleep)
    with responses.RequestsMock() as http:
        http.get(f"{V}/ping/", json={"pings": []})
        http.add_callback("GET", f"{V}/jobs/state/", callback=slurmctld)
        for _ in range(3):
            slurmctld.asked.clear()
            found = room.states(range(1, wanted + 1))
            assert sorted(found) == list(range(1, wanted + 1))
            assert all(state.states == ("RUNNING",) for state in found.values())
        assert slurmctld.asked == later
        assert set(room.states([*range(2990, 3000 + 500)])) == set(range(2990, 3001))
