"""Endpoints, tokens, versions and accounting against a slurmrestd on a real socket."""

from __future__ import annotations

import time

import jwt
import pytest

from slurmrest_adapter.config import Settings
from slurmrest_adapter.doctor import rest
from slurmrest_adapter.doctor.verdict import Verdict
from slurmrest_adapter.slurm.tokens import NoToken, StaticToken, TokenSource
from tests.unit.doctor.conftest import Slurmrestd


def probe(slurmrestd: Slurmrestd, token: str = "abc", source: TokenSource | None = None) -> rest.Probe:
    return rest.Probe(slurmrestd.address, source or StaticToken(token), 2, 2)


def test_an_endpoint_that_answers(slurmrestd: Slurmrestd) -> None:
    for source in (StaticToken("abc"), NoToken()):  # a refusal is an answer too
        answered, check = rest.endpoint(probe(slurmrestd, source=source), "alice")
        assert answered
        assert check.verdict is Verdict.OK


def test_an_endpoint_that_is_something_else(slurmrestd: Slurmrestd) -> None:
    for page in ((200, "text/html", "<html>"), (302, "text/plain", ""), (404, "text/html", "<h1>no</h1>")):
        slurmrestd.instead = lambda path, page=page: page  # type: ignore[misc]
        answered, check = rest.endpoint(probe(slurmrestd), "alice")
        assert not answered
        assert check.verdict is Verdict.FAIL
        assert check.advice


def token(left: float) -> str:
    return jwt.encode({"sun": "alice", "exp": int(time.time() + left)}, "k" * 32, algorithm="HS256")


@pytest.mark.parametrize(("left", "verdict"), [(-60, "fail"), (30, "warn"), (86400, "ok")])
def test_a_tokens_end(left: float, verdict: str) -> None:
    source = StaticToken(token(left))
    check = rest.token_at_hand(source, "alice", Settings(), time.time())
    assert check.verdict.value == verdict
    assert token(left) not in check.seen + check.advice


def test_a_token_that_is_no_jwt() -> None:
    assert rest.token_at_hand(StaticToken("abc"), None, Settings(), 0).verdict is Verdict.OK


def test_by_whom_a_token_is_refused(slurmrestd: Slurmrestd) -> None:
    slurmrestd.good = {"right"}
    assert rest.token_accepted(probe(slurmrestd, "right"), "alice", "v0.0.42").verdict is Verdict.OK
    check = rest.token_accepted(probe(slurmrestd, "wrong-one"), "alice", "v0.0.42")
    assert check.verdict is Verdict.FAIL
    assert "by slurmctld" in check.seen
    assert "wrong-one" not in check.seen + check.advice
    assert check.advice not in check.seen
    check = rest.token_accepted(probe(slurmrestd, source=NoToken()), None, "v0.0.42")
    assert "by slurmrestd" in check.seen


def test_a_daemon_that_is_down_says_nothing_of_the_token(slurmrestd: Slurmrestd) -> None:
    down = {"errors": [{"error_number": 1800, "error": "Unable to contact slurm controller"}]}
    slurmrestd.instead = lambda path: (502, "application/json", down)
    assert rest.token_accepted(probe(slurmrestd), "alice", "v0.0.42").verdict is Verdict.SKIP


def test_users_that_the_token_may_not_speak_for(slurmrestd: Slurmrestd) -> None:
    slurmrestd.refuses = {"bob"}
    asked = probe(slurmrestd)
    assert rest.may_act_for(asked, "alice", "v0.0.42").verdict is Verdict.OK
    check = rest.may_act_for(asked, "bob", "v0.0.42")
    assert check.verdict is Verdict.FAIL
    assert check.subject == "bob"
    assert "hs256" in check.advice


def test_versions(slurmrestd: Slurmrestd) -> None:
    asked = probe(slurmrestd)

    def found(configured: str) -> rest.Versions:
        return rest.versions(lambda version: asked.serves(version, "alice"), configured)

    assert found("auto").chosen == "v0.0.42"
    assert found("v0.0.41").chosen == "v0.0.41"
    pinned = found("v0.0.45")
    assert pinned.chosen is None
    assert "v0.0.41, v0.0.42" in pinned.check.advice
    slurmrestd.versions = ["v0.0.39"]
    none = found("auto")
    assert none.chosen is None
    assert none.check.verdict is Verdict.FAIL
    assert "v0.0.39" in none.check.seen
    assert "v0.0.45" in none.check.seen
    assert found("v9").check.verdict is Verdict.FAIL


def test_versions_are_not_told_to_strangers(slurmrestd: Slurmrestd) -> None:
    asked = probe(slurmrestd, source=NoToken())
    found = rest.versions(lambda version: asked.serves(version, None), "auto")
    assert found.chosen is None
    assert found.check.verdict is Verdict.SKIP
    assert rest.refused_at_the_door(asked.tokens, found.refused).verdict is Verdict.FAIL


def test_accounting(slurmrestd: Slurmrestd) -> None:
    def verdicts(*gres: str) -> list[str]:
        return [c.verdict.value for c in rest.accounting(probe(slurmrestd), "alice", "v0.0.42", gres)]

    assert verdicts("gpu", "gpu") == ["ok", "ok"]
    assert verdicts("gpu", "fpga") == ["ok", "ok", "warn"]
    slurmrestd.database = None
    assert verdicts("gpu") == ["warn"]
    down = {"errors": [{"error_number": 7000, "error": "Unable to connect to database"}]}
    slurmrestd.instead = lambda path: (502, "application/json", down)
    assert verdicts("gpu") == ["fail"]
    slurmrestd.instead = lambda path: (200, "application/json", {"TRES": None})
    assert verdicts("gpu") == ["ok", "warn"]
