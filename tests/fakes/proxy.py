"""A hostile HTTP proxy: it stands before a real server and decides what becomes of each request.

It is complete: every method, body and header goes through, connections are kept alive, many clients
are served at once. What it does to a request is its `Fate`.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "proxy-connection"})


class Fate(Enum):
    """What becomes of a request; the server behind gets it once where nothing else is said."""

    PASS = "pass"
    SWALLOW = "swallow"  # the answer is thrown away and the connection closed
    HANG = "hang"  # the answer is kept back until the client has gone
    CUT = "cut"  # half of the answer's body, then the connection is closed
    DROP = "drop"  # the server never sees it; the connection is closed
    LATE = "late"  # goes to the server after `Treatment.seconds` or its gate, whoever still waits
    TWICE = "twice"  # two copies go to the server; the first one's answer comes back
    TWICE_SECOND = "twice-second"  # … the second one's


@dataclass(frozen=True)
class Treatment:
    """A fate, and how long it takes: so many seconds, or until a gate is opened."""

    fate: Fate = Fate.PASS
    seconds: float = 0.0
    gate: threading.Event | None = field(default=None, compare=False)


PASS = Treatment()
Decide = Callable[[str, str, bytes], Treatment]


@dataclass
class Exchange:
    """One request that came through, and the status of each answer that the server gave to it."""

    method: str
    path: str
    fate: Fate
    statuses: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Answer:
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


class HostileProxy:
    """Serves on a free port of the loopback; use it as a context manager.

    Args:
        upstream: ``http://HOST:PORT`` of the server behind.
        decide: (method, path, body) → what becomes of the request; called once for each.

    Attributes:
        url: where clients go.
        exchanges: every request so far.
    """

    def __init__(self, upstream: str, decide: Decide = lambda method, path, body: PASS) -> None:
        parts = urlsplit(upstream)
        assert parts.scheme == "http"
        assert parts.hostname
        self._behind = (parts.hostname, parts.port or 80)
        self.decide = decide
        self.exchanges: list[Exchange] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> HostileProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def seen(self, fate: Fate) -> list[Exchange]:
        """The requests that met this fate."""
        with self._lock:
            return [exchange for exchange in self.exchanges if exchange.fate is fate]

    def handle(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> _Verdict:
        """Do to one request what was decided."""
        treatment = self.decide(method, path, body)
        exchange = Exchange(method, path, treatment.fate)
        with self._lock:
            self.exchanges.append(exchange)

        def ask() -> _Answer:
            answer = self._ask(method, path, headers, body)
            exchange.statuses.append(answer.status)
            return answer

        match treatment.fate:
            case Fate.DROP:
                return _Verdict(None)
            case Fate.LATE:
                if treatment.gate is None:
                    time.sleep(treatment.seconds)
                else:
                    treatment.gate.wait()
                return _Verdict(ask())
            case Fate.TWICE | Fate.TWICE_SECOND:
                first, second = ask(), ask()
                return _Verdict(first if treatment.fate is Fate.TWICE else second)
            case Fate.SWALLOW:
                ask()
                return _Verdict(None)
            case fate:
                return _Verdict(ask(), cut=fate is Fate.CUT, hang=fate is Fate.HANG)

    def _ask(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> _Answer:
        connection = http.client.HTTPConnection(*self._behind, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in _HOP:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            kept = [(n, v) for n, v in response.getheaders() if n.lower() not in {*_HOP, "content-length"}]
            return _Answer(response.status, response.reason, kept, response.read())
        finally:
            connection.close()


@dataclass(frozen=True)
class _Verdict:
    answer: _Answer | None
    cut: bool = False
    hang: bool = False


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 200
    proxy: HostileProxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one write
    server: _Server

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            verdict = self.server.proxy.handle(self.command, self.path, self.headers.items(), body)
        except OSError as error:  # nobody behind
            self.send_error(502, explain=str(error))
            return
        if verdict.hang:
            self._until_the_client_goes()
        if verdict.answer is None or verdict.hang:
            self.close_connection = True
            return
        with contextlib.suppress(OSError):  # a client that has gone
            self._answer(verdict.answer, verdict.cut)

    def _answer(self, answer: _Answer, cut: bool) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)
        self.wfile.flush()
        self.close_connection = self.close_connection or cut

    def _until_the_client_goes(self) -> None:
        self.connection.settimeout(60)
        with contextlib.suppress(OSError):
            self.connection.recv(1, socket.MSG_PEEK)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = _handle

    def log_message(self, format: str, *args: Any) -> None:
        pass
