"""Reaching slurmrestd: pools, endpoints, time-outs, and what must not travel."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import responses

from slurmrest_adapter.domain.errors import ConfigError, Unavailable
from slurmrest_adapter.slurm.session import AnswerLost, Session
from slurmrest_adapter.slurm.unixsocket import unix_url

TOKEN = "eyJ-the-token"
HEADERS = {"X-SLURM-USER-TOKEN": TOKEN}
Start = Callable[..., Any]


def refused_url() -> str:
    """An address where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.parametrize("socket_name", [None, "a b%2F.sock"])
def test_connections_are_kept_and_parameters_arrive(start: Start, socket_name: str | None) -> None:
    server = start(socket_name)
    session = Session([server.url])
    for _ in range(20):
        response = session.send("GET", "/slurm/x", params=[("a", "1&2"), ("a", "3")], headers=HEADERS)
        assert response.status_code == 200
    assert server.opened == 1
    assert {path for _, path, _, _ in server.requests} == {"/slurm/x?a=1%262&a=3"}


@pytest.mark.parametrize("socket_name", [None, "rest.sock"])
def test_many_callers_open_no_more_connections_than_the_pool(start: Start, socket_name: str | None) -> None:
    server = start(socket_name)
    server.delay = 0.005
    session = Session([server.url], pool=5)
    with ThreadPoolExecutor(130) as callers:
        answers = list(callers.map(lambda _: session.send("GET", "/x", headers=HEADERS), range(130)))
    assert all(answer.status_code == 200 for answer in answers)
    assert len(server.requests) == 130
    assert server.opened <= 5


def test_content_type_is_exact_and_body_is_json(start: Start) -> None:
    server = start()
    Session([server.url]).send("POST", "/x", body={"a": "ü\n"}, headers=HEADERS)
    _, _, headers, body = server.requests[0]
    assert headers["Content-Type"] == "application/json"
    assert body == b'{"a":"\\u00fc\\n"}'


def test_redirect_is_not_followed(start: Start) -> None:
    other, server = start(), start()
    server.status, server.headers = 307, {"Location": other.url + "/elsewhere"}
    response = Session([server.url]).send("GET", "/x", headers=HEADERS)
    assert response.status_code == 307
    assert other.requests == []


def test_netrc_and_proxy_variables_are_ignored(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login alice password secret\ndefault login a password b\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    proxy = start()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server = start()
    Session([server.url]).send("GET", "/x", headers=HEADERS)
    assert proxy.requests == []
    assert "Authorization" not in server.requests[0][2]


def test_cookies_are_not_kept(start: Start) -> None:
    server = start()
    server.headers = {"Set-Cookie": "a=b; Path=/", "Content-Type": "application/json"}
    session = Session([server.url])
    session.send("GET", "/x", headers=HEADERS)
    session.send("GET", "/x", headers=HEADERS)
    assert "Cookie" not in server.requests[1][2]


def test_the_next_endpoint_is_tried_when_none_listens(start: Start, tmp_path: Path) -> None:
    server = start()
    session = Session([refused_url(), f"unix://{tmp_path}/none.sock", server.url])
    assert session.send("POST", "/x", body={}, headers=HEADERS).status_code == 200
    assert len(server.requests) == 1


def test_no_endpoint_listens(tmp_path: Path) -> None:
    url = refused_url()
    with pytest.raises(Unavailable) as caught:
        Session([url, f"unix://{tmp_path}/none.sock"]).send("POST", "/x", body={}, headers=HEADERS)
    assert not isinstance(caught.value, AnswerLost)
    assert str(caught.value) == (
        f"cannot reach slurmrestd at {url}: connection refused; "
        f"unix://{tmp_path}/none.sock: no such file or directory"
    )


def test_a_failed_endpoint_comes_last_for_a_while(start: Start) -> None:
    now = [0.0]
    first, second = start(), start()
    missing = refused_url()
    session = Session([missing, second.url, first.url], clock=lambda: now[0])
    session.send("GET", "/x", headers=HEADERS)
    assert [e.shown for e in session._in_order()] == [second.url, first.url, missing]
    now[0] = 31
    assert [e.shown for e in session._in_order()] == [missing, second.url, first.url]


def test_silence_after_sending_goes_to_no_other_endpoint(start: Start) -> None:
    server, other = start(), start()
    server.delay = 1.0
    with pytest.raises(AnswerLost, match=r"nothing within 0\.05 s"):
        Session([server.url, other.url], read_s=0.05).send("POST", "/x", body={}, headers=HEADERS)
    assert other.requests == []


def test_a_connection_closed_under_us_is_used_again_only_for_what_may_be_repeated(start: Start) -> None:
    server = start()
    session = Session([server.url])
    server.hang_up = 1
    assert session.send("GET", "/x", headers=HEADERS, repeatable=True).status_code == 200
    assert len(server.requests) == 2
    server.hang_up = 1
    with pytest.raises(AnswerLost, match="connection lost"):
        session.send("POST", "/x", body={}, headers=HEADERS)
    assert len(server.requests) == 3
    server.hang_up = 2
    with pytest.raises(AnswerLost):
        session.send("GET", "/x", headers=HEADERS, repeatable=True)


def test_a_broken_off_answer_is_lost(start: Start) -> None:
    server = start()
    server.headers = {"Content-Type": "application/json", "Content-Length": "500"}
    with pytest.raises(AnswerLost, match="broke off"):
        Session([server.url]).send("GET", "/x", headers=HEADERS)


def test_no_token_in_errors_or_logs(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = start()
    server.hang_up = 1
    for session in (Session([server.url]), Session([refused_url()])):
        with pytest.raises(Unavailable) as caught:
            session.send("POST", "/x", body={}, headers=HEADERS)
        error = caught.value
        assert TOKEN not in repr(error)
        assert error.__cause__ is None
        assert error.__context__ is None
        assert TOKEN not in repr(session)
    assert TOKEN not in caplog.text


def test_headers_of_one_call_do_not_stay(start: Start) -> None:
    server = start()
    session = Session([server.url], pool=3)
    wrong: list[str] = []
    barrier = threading.Barrier(8)

    def call(user: str) -> None:
        barrier.wait()
        for number in range(25):
            session.send("GET", f"/{user}/{number}", headers={"X-SLURM-USER-NAME": user})

    threads = [threading.Thread(target=call, args=(f"user{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.send("GET", "/none/0", headers={})
    for _, path, headers, _ in server.requests:
        if headers.get("X-SLURM-USER-NAME", "none") != path.split("/")[1]:
            wrong.append(path)
    assert len(server.requests) == 201
    assert wrong == []


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:6820",
        "ftp://x",
        "unix://host/path",
        "unix:///",
        "unix:relative",
        "http://",
        "http://:80",
        "http://x:99999",
        "http://user:hunter2@host",
        "http://x/?a=b",
    ],
)
def test_bad_endpoints_are_named(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"^slurm\.endpoints: ") as caught:
        Session([endpoint])
    assert "hunter2" not in str(caught.value)


def test_no_endpoint_and_no_connection_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"slurm\.endpoints"):
        Session([])
    with pytest.raises(ConfigError, match=r"slurm\.pool"):
        Session(["http://x"], pool=0)


@responses.activate
def test_calls_over_the_socket_can_be_intercepted() -> None:
    responses.get(unix_url("/run/rest.sock") + "/slurm/x", json={"a": 1})
    response = Session(["unix:///run/rest.sock"]).send("GET", "/slurm/x", headers=HEADERS)
    assert response.json() == {"a": 1}
