"""Each voice in which slurmrestd, or something before it, may answer."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
import requests

from slurmrest_adapter.domain.errors import (
    Denied,
    Incompatible,
    NotFound,
    Rejected,
    SlurmError,
    Unauthorized,
    Unavailable,
)
from slurmrest_adapter.slurm import answers
from slurmrest_adapter.slurm.session import AnswerLost
from slurmrest_adapter.slurm.tokens import StaticToken

TOKEN = jwt.encode({"sun": "alice", "exp": 1000}, bytes(32))
JSON = "application/json"


def answer(
    status: int, body: Any, kind: str = JSON, path: str = "/slurm/v0.0.42/jobs/", **headers: str
) -> requests.Response:
    response = requests.Response()
    response.status_code = status
    response.headers.update({"Content-Type": kind, **headers})
    response._content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response.request = requests.Request(
        "GET", "http://localhost" + path, headers={"X-SLURM-USER-TOKEN": TOKEN}
    ).prepare()
    return response


def errors(
    number: int | None, name: str | None = "Short words", description: str | None = "Long words"
) -> Any:
    row = {"description": description, "error_number": number, "error": name, "source": "here"}
    return {"errors": [row], "warnings": []}


def caught(response: requests.Response) -> SlurmError:
    with pytest.raises(SlurmError) as info:
        answers.check(response, source=StaticToken(TOKEN), user="alice", ours=["v0.0.42"])
    assert TOKEN not in str(info.value) + repr(info.value) + repr(vars(info.value))
    assert "\n" not in str(info.value)
    return info.value


@pytest.mark.parametrize("status", [500, 422, 200, 404])
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (2000, Rejected),
        (2045, Rejected),
        (2014, Rejected),
        (2002, Denied),
        (2017, NotFound),
        (-1, SlurmError),
    ],
)
def test_errors_in_json_whatever_the_code(status: int, number: int, kind: type[SlurmError]) -> None:
    error = caught(answer(status, errors(number)))
    assert isinstance(error, kind)
    assert "Short words" in str(error)
    if isinstance(error, Rejected):
        assert type(error) is (kind if number > 0 else Rejected)
        assert error.number == max(number, 0)


def test_the_words_are_slurms() -> None:
    error = caught(
        answer(500, errors(2000, "Invalid partition name specified", "Batch job submission failed"))
    )
    assert str(error) == "Slurm refused: Invalid partition name specified (error 2000)"
    error = caught(answer(200, errors(-1, "Unspecified error", "Could not parse the field x")))
    assert str(error) == "Slurm refused: Unspecified error: Could not parse the field x"


def test_the_first_numbered_error_counts() -> None:
    body = {"errors": [{"description": "something else"}, {"error_number": 2002, "error": "Denied"}]}
    assert isinstance(caught(answer(500, body)), Denied)


@pytest.mark.parametrize("number", [1800, 7000])
def test_a_daemon_that_is_down_is_named(number: int) -> None:
    error = caught(answer(502, errors(number)))
    assert type(error) is Unavailable  # not AnswerLost: nothing reached it
    assert {1800: "slurmctld", 7000: "slurmdbd"}[number] in str(error)


@pytest.mark.parametrize(("status", "number"), [(504, 5004), (502, 1802), (500, 1003), (502, 2), (500, None)])
def test_a_conversation_that_broke_leaves_it_open(status: int, number: int | None) -> None:
    error = caught(answer(status, errors(number), path="/slurmdb/v0.0.42/jobs/"))
    assert isinstance(error, AnswerLost)
    assert "slurmdbd" in str(error)


@pytest.mark.parametrize(
    "response",
    [
        answer(401, b"Authentication failure", "text/plain"),
        answer(511, errors(1007, "Protocol authentication error")),
        answer(500, errors(1007, "Protocol authentication error")),
        answer(500, b"Protocol authentication error", "text/plain"),
        answer(200, errors(6001)),
        answer(511, b"", "text/html"),
    ],
)
def test_a_refused_token_names_its_source_and_what_to_do(response: requests.Response) -> None:
    error = caught(response)
    assert isinstance(error, Unauthorized)
    for words in ("the static token", "for user alice", "it has expired", "scontrol token"):
        assert words in str(error)


def test_a_version_that_is_not_served() -> None:
    body = b"Unable find requested URL. Please view /openapi/v3 for API reference.\n"
    error = caught(answer(404, body, "text/plain"))
    assert isinstance(error, Incompatible)
    assert error.ours == ("v0.0.42",)


@pytest.mark.parametrize(
    ("response", "kind", "words"),
    [
        (answer(404, b"<html>", "text/html"), SlurmError, "no slurmrestd"),
        (answer(400, b"", "text/plain"), Rejected, "HTTP 400"),
        (answer(400, b"bad\njson", "text/plain"), Rejected, "bad json (HTTP 400)"),
        (answer(413, b"too large", "text/plain"), Rejected, "too large"),
        (answer(500, b"Insane message length", "text/plain"), AnswerLost, "Insane message length"),
        (answer(503, b"<html>down for maintenance", "text/html"), AnswerLost, "down for maintenance"),
        (answer(504, b"", ""), AnswerLost, "HTTP 504"),
        (answer(500, {"errors": []}), AnswerLost, "HTTP 500"),
        (answer(400, {"errors": [], "warnings": [{"description": "hm"}]}), Rejected, "HTTP 400; hm"),
        (answer(200, b"<html>", "text/html"), AnswerLost, "text/html in place of JSON"),
        (answer(200, b'{"errors": [', JSON), AnswerLost, "breaks off"),
        (answer(200, b"[]", JSON), AnswerLost, "breaks off"),
        (answer(500, b"x" * 5000, "text/plain"), AnswerLost, "x…"),
    ],
)
def test_everything_else_has_a_clear_error(
    response: requests.Response, kind: type[SlurmError], words: str
) -> None:
    error = caught(response)
    assert type(error) is kind
    assert words in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304])
def test_a_redirect_is_an_error_that_says_so(status: int) -> None:
    error = caught(answer(status, b"", "text/html", Location=f"https://elsewhere/x?token={TOKEN}"))
    assert type(error) is SlurmError
    assert "redirect" in str(error)
    assert "https://elsewhere" in str(error)


def test_an_echoed_token_is_taken_out() -> None:
    for response in (
        answer(500, f"no: X-SLURM-USER-TOKEN: {TOKEN}".encode(), "text/plain"),
        answer(500, errors(2000, f"bad {TOKEN}")),
        answer(401, TOKEN.encode(), "text/plain"),
    ):
        assert "[token]" in str(caught(response))


@pytest.mark.parametrize(
    "body",
    [
        b'{"errors":null,"warnings":null,"jobs":null}',
        b'{"jobs":[{"billable":NaN,"x":Infinity}],"errors":[],"warnings":[]}',
        b'{"errors":[{}],"warnings":[{"description":null}]}',
        b"{}",
    ],
)
def test_success(body: bytes) -> None:
    found = answers.check(answer(200, body), source=StaticToken(TOKEN))
    assert found.error_rows == []
    assert found.warning_words == ()


def test_warnings_are_given_once() -> None:
    rows = [{"description": "a\nb", "source": "x"}, {"description": "a b"}, {"error": "c"}]
    found = answers.check(answer(200, {"warnings": rows}), source=StaticToken(TOKEN))
    assert found.warning_words == ("a b", "c")


def test_content_type_with_a_charset_is_json_too() -> None:
    assert answers.check(answer(200, {}, "Application/JSON; charset=utf-8"), source=StaticToken(TOKEN))
