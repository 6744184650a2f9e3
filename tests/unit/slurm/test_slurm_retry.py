"""Asking again: only what does no harm, only what may go well, not often and not for long."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import responses
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import (
    Denied,
    Incompatible,
    MaybeAccepted,
    NotFound,
    Rejected,
    SlurmError,
    Unauthorized,
    Unavailable,
)
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.slurm.breaker import OFF, CircuitOpen
from slurmrest_adapter.slurm.gateway import Gateway
from slurmrest_adapter.slurm.retry import NEVER, USUAL, Counters, Retrier, RetryPolicy, retry_after
from slurmrest_adapter.slurm.session import AnswerLost, Session
from slurmrest_adapter.slurm.tokens import StaticToken
from tests.fakes.clock import FakeClock

BASE = "http://slurm.test:6820"
V = f"{BASE}/slurm/v0.0.42"
DB = f"{BASE}/slurmdb/v0.0.42"
SPEC = JobSpec(name="web-0123456789ab", comment="sra1:x.y", user="alice")
DOWN = {"errors": [{"error_number": 1800, "error": "Unable to contact slurm controller"}]}
Start = Callable[..., Any]


class Question:
    """Fails so often, then answers; each call takes so many seconds."""

    def __init__(self, clock: FakeClock, *failures: SlurmError, takes: float = 0) -> None:
        self._clock = clock
        self._failures = list(failures)
        self._takes = takes
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self._takes:
            self._clock.sleep(self._takes)
        if self._failures:
            raise self._failures.pop(0)
        return "answer"


def retrier(clock: FakeClock, policy: RetryPolicy = USUAL, counters: Counters | None = None) -> Retrier:
    return Retrier(policy, counters, clock=clock, sleep=clock.sleep)


@pytest.mark.parametrize("failure", [Unavailable("no"), AnswerLost("cut")])
def test_could_not_ask_is_asked_again(failure: Unavailable) -> None:
    clock, counters = FakeClock(), Counters()
    question = Question(clock, failure, failure)
    assert retrier(clock, counters=counters)(question) == "answer"
    assert question.asked == 3
    assert counters.read() == {"retries": 2}


@pytest.mark.parametrize(
    "answer",
    [
        Rejected(2000, "Invalid partition"),
        Denied(2002, "no"),
        NotFound(2017, "Invalid job id"),
        Unauthorized("token"),
        Incompatible(["v0.0.42"], []),
        MaybeAccepted("perhaps"),
        CircuitOpen("slurmctld has not answered"),
        SlurmError("redirect"),
    ],
)
def test_an_answer_is_not_asked_for_again(answer: SlurmError) -> None:
    clock, counters = FakeClock(), Counters()
    question = Question(clock, answer)
    with pytest.raises(type(answer)) as caught:
        retrier(clock, counters=counters)(question)
    assert caught.value is answer
    assert (question.asked, clock.slept, counters.read()) == (1, 0, {})


def test_tries_are_bounded_and_the_last_error_is_raised() -> None:
    clock, counters = FakeClock(), Counters()
    failures = [Unavailable(str(number)) for number in range(9)]
    question = Question(clock, *failures)
    with pytest.raises(Unavailable) as caught:
        retrier(clock, RetryPolicy(tries=4, seconds=1000), counters)(question)
    assert caught.value is failures[3]
    assert question.asked == 4
    assert counters.read() == {"retries": 3, "gave_up": 1}


def test_time_is_bounded_too() -> None:
    """One time-out is as long as all tries may take together: nobody waits three times 30 seconds."""
    clock = FakeClock()
    question = Question(clock, *[AnswerLost("slow")] * 9, takes=30)
    with pytest.raises(Unavailable):
        retrier(clock)(question)
    assert question.asked == 1


def test_a_slow_answer_is_no_failure() -> None:
    clock = FakeClock()
    question = Question(clock, takes=29)
    assert retrier(clock)(question) == "answer"
    assert question.asked == 1


@given(
    tries=st.integers(1, 8),
    seconds=st.floats(0, 60),
    first=st.floats(0.01, 5),
    longest=st.floats(0.01, 5),
    takes=st.floats(0.01, 20),
)
def test_no_call_begins_later_than_the_policy_says(
    tries: int, seconds: float, first: float, longest: float, takes: float
) -> None:
    clock = FakeClock(0.0)
    begun: list[float] = []

    def question() -> None:
        begun.append(clock.now)
        clock.sleep(takes)
        raise Unavailable("no")

    with pytest.raises(Unavailable):
        retrier(clock, RetryPolicy(tries, seconds, first, longest))(question)
    assert 1 <= len(begun) <= tries
    assert all(moment <= seconds for moment in begun[1:])
    pauses = [later - sooner - takes for sooner, later in itertools.pairwise(begun)]
    assert all(pause <= min(longest, first * 2**n) + 1e-6 for n, pause in enumerate(pauses))


def test_many_that_failed_together_do_not_come_back_together() -> None:
    waits = set()
    for _ in range(50):
        clock = FakeClock()
        retrier(clock)(Question(clock, Unavailable("no")))
        waits.add(round(clock.slept, 6))
    assert len(waits) > 40


def test_the_off_switch() -> None:
    clock = FakeClock()
    question = Question(clock, Unavailable("no"))
    with pytest.raises(Unavailable):
        retrier(clock, NEVER)(question)
    assert (question.asked, clock.slept) == (1, 0)


def test_an_asked_for_pause_is_kept_or_the_question_given_up() -> None:
    clock = FakeClock()
    short, long = Unavailable("busy"), Unavailable("busy")
    short.retry_after, long.retry_after = 3.0, 60.0
    assert retrier(clock)(Question(clock, short)) == "answer"
    assert clock.slept >= 3
    question = Question(clock, long)
    with pytest.raises(Unavailable):
        retrier(clock)(question)
    assert question.asked == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("9" * 400, 999999999.0),
        ("٣", None),
    ],
)
def test_retry_after(header: str, seconds: float | None) -> None:
    assert retry_after({"retry-AFTER": header}, now=lambda: 60.0) == seconds
    assert retry_after({}, now=lambda: 60.0) is None


# The gateway


def gateway(clock: FakeClock, url: str = BASE, policy: RetryPolicy = USUAL, **session: Any) -> Gateway:
    return Gateway(
        Session([url], **session),
        StaticToken("t"),
        api_version="v0.0.42",
        retry=policy,
        breaker=OFF,
        clock=clock,
        sleep=clock.sleep,
    )


@pytest.fixture
def http() -> Any:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        mock.get(f"{V}/ping/", json={"pings": []})
        yield mock


def asked(http: Any) -> list[str]:
    return [call.request.url for call in http.calls if not call.request.url.endswith("/ping/")]


QUESTIONS: dict[str, Callable[[Gateway], object]] = {
    "states": lambda room: room.states([1]),
    "job": lambda room: room.job(1),
    "nodes": lambda room: room.nodes(),
    "partitions": lambda room: room.partitions(),
    "cancel": lambda room: room.cancel(1, "alice"),
}


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("status", [502, 503, 504])
def test_questions_and_cancels_are_asked_again(http: Any, name: str, status: int) -> None:
    paths = {"states": "jobs/state/", "job": "job/1", "nodes": "nodes/", "partitions": "partitions/"}
    url = f"{V}/{paths.get(name, 'job/1')}"
    method = "DELETE" if name == "cancel" else "GET"
    http.add(method, url, json=DOWN, status=status)
    http.add(method, url, body="bad gateway", content_type="text/plain", status=status)
    http.add(method, url, json={"jobs": [{"job_id": 1}], "nodes": [], "partitions": [], "status": []})
    room = gateway(FakeClock())
    QUESTIONS[name](room)
    assert len(asked(http)) == 3
    assert room.counters == {"retries": 2}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [({"json": DOWN, "status": 502}, Unavailable), ({"body": "x", "status": 504}, MaybeAccepted)],
)
def test_a_submit_is_never_asked_again(http: Any, answer: dict[str, Any], kind: type[SlurmError]) -> None:
    http.post(f"{V}/job/submit", **answer)
    room = gateway(FakeClock())
    with pytest.raises(kind):
        room.submit(SPEC, "#!/bin/sh\n")
    assert len(asked(http)) == 1
    assert room.counters == {}


def test_a_signal_is_never_asked_again(http: Any) -> None:
    http.delete(f"{V}/job/1", json=DOWN, status=502)
    with pytest.raises(Unavailable):
        gateway(FakeClock()).signal(1, "TERM", "alice")
    assert len(asked(http)) == 1


def test_retry_after_of_a_proxy_is_honoured(http: Any) -> None:
    for status in (429, 503):
        busy = {
            "body": "busy",
            "status": status,
            "content_type": "text/plain",
            "headers": {"Retry-After": "2"},
        }
        http.get(f"{V}/nodes/", **busy)
    http.get(f"{V}/nodes/", json={"nodes": []})
    clock = FakeClock()
    assert gateway(clock).nodes() == []
    assert clock.slept >= 4


def test_a_limited_submit_was_not_done(http: Any) -> None:
    http.post(f"{V}/job/submit", body="slow down", status=429, content_type="text/plain")
    with pytest.raises(Unavailable, match="429: too many requests: slow down"):
        gateway(FakeClock()).submit(SPEC, "#!/bin/sh\n")


def test_a_refused_token_under_slurmdb_is_not_asked_again(http: Any) -> None:
    """There it looks like a slurmdbd that is down."""
    http.get(f"{DB}/job/1", json={"errors": [{"error_number": 7000, "error": "x"}]}, status=502)
    http.get(f"{V}/jobs/state/", json={"errors": [{"error_number": 1007, "error": "x"}]}, status=511)
    with pytest.raises(Unauthorized):
        gateway(FakeClock()).accounting(1)
    assert len(asked(http)) == 2


def test_a_hung_connection_is_given_up_and_another_tried(start: Start) -> None:
    server = start()
    server.body = b'{"nodes": []}'
    room = gateway(FakeClock(), server.url)
    room.nodes()
    before = len(server.requests)
    server.hang_up = 3  # twice at the first try, where the first could have been a stale connection's
    assert room.nodes() == []
    assert len(server.requests) - before == 4
    assert room.counters == {"retries": 1}


def test_the_next_try_goes_to_the_other_endpoint(start: Start) -> None:
    first, second = start(), start()
    first.body = second.body = b'{"nodes": []}'
    clock = FakeClock()
    session = Session([first.url, second.url], read_s=0.2)
    room = Gateway(session, StaticToken("t"), api_version="v0.0.42", clock=clock, sleep=clock.sleep)
    room.nodes()
    before, first.delay = len(first.requests), 1.0
    assert room.nodes() == []
    assert (len(first.requests) - before, len(second.requests)) == (1, 1)
