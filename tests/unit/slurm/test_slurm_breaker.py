"""The circuit breaker: when it opens, whom it lets through, what closes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import responses

from slurmrest_adapter.domain.errors import (
    Denied,
    NotFound,
    Rejected,
    SlurmError,
    Unauthorized,
    Unavailable,
)
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.slurm.breaker import OFF, Breaker, BreakerPolicy, CircuitOpen
from slurmrest_adapter.slurm.gateway import Gateway
from slurmrest_adapter.slurm.retry import NEVER
from slurmrest_adapter.slurm.session import AnswerLost, Session
from slurmrest_adapter.slurm.tokens import StaticToken
from tests.fakes.clock import FakeClock

BASE = "http://slurm.test:6820"
V = f"{BASE}/slurm/v0.0.42"
DB = f"{BASE}/slurmdb/v0.0.42"
POLICY = BreakerPolicy(failures=3, first_s=2, longest_s=7)
SPEC = JobSpec(name="web-0123456789ab", comment="sra1:x.y", user="alice")


class Circuit:
    """A breaker on a made-up clock."""

    def __init__(self, policy: BreakerPolicy = POLICY) -> None:
        self.clock = FakeClock(0.0)
        self.opened = 0
        self.breaker = Breaker("slurmctld", policy, opened=self._count, clock=self.clock, wall=self.clock)

    def _count(self) -> None:
        self.opened += 1

    def fail(self, error: BaseException | None = None) -> None:
        error = error or Unavailable("connection refused")
        with pytest.raises(type(error)) as caught, self.breaker.call():
            raise error
        assert caught.value is error  # let through, and not the breaker's own

    def answer(self) -> None:
        with self.breaker.call():
            pass

    def refused(self) -> str:
        with pytest.raises(CircuitOpen) as caught, self.breaker.call():
            raise AssertionError("the call was made")
        return str(caught.value)


@pytest.fixture
def circuit() -> Circuit:
    return Circuit()


def test_it_opens_after_failures_in_a_row(circuit: Circuit) -> None:
    circuit.fail()
    circuit.fail()
    circuit.answer()
    circuit.fail()
    circuit.clock.sleep(65)
    circuit.fail(AnswerLost("nothing within 30 s"))
    assert not circuit.breaker.is_open
    circuit.fail(AnswerLost("nothing within 30 s"))
    assert circuit.breaker.is_open
    assert circuit.refused() == (
        "slurmctld has not answered since 00:00:00 UTC (nothing within 30 s); "
        "it is asked again at 00:01:07 UTC"
    )
    assert circuit.opened == 1


@pytest.mark.parametrize(
    "answer",
    [
        Rejected(2000, "Invalid partition"),
        Denied(2002, "no"),
        NotFound(2017, "no such job"),
        Unauthorized("token"),
        SlurmError("a redirect"),
    ],
)
def test_refusals_never_open_it_and_count_as_answers(circuit: Circuit, answer: SlurmError) -> None:
    for _ in range(20):
        circuit.fail(answer)
    circuit.fail()
    circuit.fail()
    circuit.fail(answer)
    circuit.fail()
    circuit.fail()
    assert not circuit.breaker.is_open


def test_one_probe_goes_through_and_its_answer_closes(circuit: Circuit) -> None:
    for _ in range(3):
        circuit.fail()
    circuit.clock.sleep(1.9)
    circuit.refused()
    circuit.clock.sleep(0.1)
    with circuit.breaker.call():
        assert "asked again now" in circuit.refused()  # the others still fail
        assert circuit.breaker.is_open
    assert not circuit.breaker.is_open
    circuit.answer()


def test_a_refused_probe_closes_too(circuit: Circuit) -> None:
    for _ in range(3):
        circuit.fail()
    circuit.clock.sleep(2)
    circuit.fail(Denied(2002, "no"))
    assert not circuit.breaker.is_open


def test_each_failed_probe_doubles_the_time_up_to_the_longest(circuit: Circuit) -> None:
    for _ in range(3):
        circuit.fail()
    for seconds in (2, 4, 7, 7):
        circuit.clock.sleep(seconds - 0.01)
        circuit.refused()
        circuit.clock.sleep(0.01)
        circuit.fail()
    assert circuit.opened == 5
    circuit.clock.sleep(7)
    circuit.answer()
    for _ in range(3):
        circuit.fail()
    circuit.clock.sleep(2)
    circuit.answer()  # short again after it was well


def test_a_probe_that_crashes_makes_room_for_the_next(circuit: Circuit) -> None:
    for _ in range(3):
        circuit.fail()
    circuit.clock.sleep(2)
    circuit.fail(KeyboardInterrupt())
    assert circuit.breaker.is_open
    circuit.answer()
    assert not circuit.breaker.is_open


def test_an_answer_that_proves_little_closes_nothing(circuit: Circuit) -> None:
    for _ in range(2):
        circuit.fail()
    with circuit.breaker.call(proves=False):
        pass
    circuit.fail()
    assert circuit.breaker.is_open


def test_late_failures_do_not_keep_it_open(circuit: Circuit) -> None:
    """Of threads that were on their way when it opened."""
    calls = [circuit.breaker.call() for _ in range(8)]
    for call in calls:
        call.__enter__()
    for call in calls:
        circuit.clock.sleep(0.1)
        assert not call.__exit__(Unavailable, Unavailable("x"), None)
    assert circuit.opened == 1
    circuit.clock.sleep(1.5)
    circuit.answer()


def test_a_late_answer_closes(circuit: Circuit) -> None:
    call = circuit.breaker.call()
    call.__enter__()
    for _ in range(3):
        circuit.fail()
    call.__exit__(None, None, None)
    assert not circuit.breaker.is_open


def test_off() -> None:
    circuit = Circuit(OFF)
    for _ in range(100):
        circuit.fail()
    circuit.answer()


def test_many_threads_send_one_probe() -> None:
    circuit = Circuit()
    for _ in range(3):
        circuit.fail()
    circuit.clock.sleep(2)
    through: list[int] = []
    together, leave = threading.Barrier(16), threading.Event()

    def call(number: int) -> None:
        together.wait()
        try:
            with circuit.breaker.call():
                through.append(number)
                leave.wait()
        except CircuitOpen:
            if len(through) != 1:
                through.append(-1)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    while sum(thread.is_alive() for thread in threads) > 1:
        threading.Event().wait(0.01)
    leave.set()
    for thread in threads:
        thread.join()
    assert len([number for number in through if number >= 0]) == 1


# The gateway


def gateway(clock: FakeClock, url: str = BASE, version: str = "v0.0.42") -> Gateway:
    return Gateway(
        Session([url], read_s=0.2),
        StaticToken("t"),
        api_version=version,
        retry=NEVER,
        breaker=POLICY,
        clock=clock,
        sleep=clock.sleep,
    )


@pytest.fixture
def http() -> Any:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.get(f"{V}/ping/", json={"pings": []})
        yield mock


def test_a_dead_slurmrestd_holds_no_thread_for_a_time_out(start: Callable[..., Any]) -> None:
    server = start()
    server.body = b'{"jobs": []}'
    room = gateway(FakeClock(), server.url)
    room.states([1])
    server.requests.clear()
    server.delay = 1.0
    for _ in range(3):
        with pytest.raises(AnswerLost):
            room.states([1])
    for call in (lambda: room.states([1]), lambda: room.submit(SPEC, "s"), lambda: room.cancel(1, "alice")):
        with pytest.raises(CircuitOpen, match="slurmctld has not answered since"):
            call()
    assert len(server.requests) == 3
    assert room.counters == {"opened": 1}


def test_negotiation_with_a_dead_slurmrestd_opens_it_too(start: Callable[..., Any]) -> None:
    server = start()
    server.delay = 1.0
    room = gateway(FakeClock(), server.url, "auto")
    for _ in range(3):
        with pytest.raises(Unavailable):
            room.states([1])
    with pytest.raises(CircuitOpen):
        room.states([1])
    assert len(server.requests) == 3


def test_slurmdbd_alone_stops_nothing_else(http: Any) -> None:
    http.get(f"{DB}/job/1", json={"errors": [{"error_number": 7000, "error": "x"}]}, status=502)
    http.get(f"{V}/jobs/state/", json={"jobs": []})
    room = gateway(FakeClock())
    for _ in range(3):
        with pytest.raises(Unavailable, match="7000"):
            room.accounting(1)
    with pytest.raises(CircuitOpen, match="slurmdbd"):
        room.accounting(1)
    assert room.states([1]) == {}


def test_a_wrong_token_under_slurmdb_does_not_open_it(http: Any) -> None:
    http.get(f"{DB}/job/1", json={"errors": [{"error_number": 7000, "error": "x"}]}, status=502)
    http.get(f"{V}/jobs/state/", json={"errors": [{"error_number": 1007, "error": "x"}]}, status=511)
    room = gateway(FakeClock())
    for _ in range(10):
        with pytest.raises(Unauthorized):
            room.accounting(1)


def test_ping_tells_the_truth_and_does_not_close_it(http: Any) -> None:
    """slurmrestd answers a ping also when slurmctld is down."""
    down = {"errors": [{"error_number": 1800, "error": "x"}]}
    http.get(f"{V}/nodes/", json=down, status=502)
    room = gateway(FakeClock())
    for _ in range(3):
        with pytest.raises(Unavailable):
            room.nodes()
        assert not room.ping().up
    with pytest.raises(CircuitOpen):
        room.nodes()
    assert not room.ping().up


def test_it_closes_when_slurmctld_is_back(http: Any) -> None:
    down = {"errors": [{"error_number": 1800, "error": "x"}]}
    http.get(f"{V}/nodes/", json=down, status=502)
    clock = FakeClock()
    room = gateway(clock)
    for _ in range(3):
        with pytest.raises(Unavailable):
            room.nodes()
    http.replace("GET", f"{V}/nodes/", json={"nodes": []})
    with pytest.raises(CircuitOpen):
        room.nodes()
    clock.sleep(2)
    assert room.nodes() == []
    assert room.nodes() == []
