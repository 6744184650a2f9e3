"""A slurmrestd of a few paths on a real socket, and a small Slurm in memory behind the gateway."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from slurmrest_adapter.doctor.told import Findings

TOKEN, USER = "X-SLURM-USER-TOKEN", "X-SLURM-USER-NAME"
Answer = tuple[int, str, Any]


class Slurmrestd:
    """Answers as slurmrestd does, text where it answers text.

    Attributes:
        versions: those it serves.
        good: tokens it takes; None takes any.
        refuses: user names that no token may speak for.
        database: whether there is a /slurmdb, and its TRES.
        instead: gives another answer to a path, or None.
    """

    def __init__(self) -> None:
        self.versions = ["v0.0.41", "v0.0.42"]
        self.good: set[str] | None = None
        self.refuses: set[str] = set()
        self.database: list[tuple[str, str]] | None = [("cpu", ""), ("gres", "gpu")]
        self.instead: Callable[[str], Answer | None] = lambda path: None
        self.seen: list[tuple[str, str | None]] = []
        daemon = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = daemon.answer(self.path, self.headers.get(TOKEN), self.headers.get(USER))
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, token: str | None, user: str | None) -> Answer:
        self.seen.append((path, user))
        other = self.instead(path)
        if other is not None:
            return other
        if token is None:
            return 401, "text/plain", "Authentication failure"
        version = path.split("/")[2]
        if version not in self.versions:
            return 404, "text/plain", "Unable find requested URL"
        if path.endswith("/ping/"):
            return 200, "application/json", {"pings": [], "errors": []}
        if user in self.refuses or (self.good is not None and token not in self.good):
            return (
                511,
                "application/json",
                {"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]},
            )
        if path.startswith("/slurmdb/"):
            if self.database is None:
                return 404, "text/plain", "Unable find requested URL"
            return 200, "application/json", {"TRES": [{"type": t, "name": n} for t, n in self.database]}
        return 200, "application/json", {"jobs": [], "errors": []}


@pytest.fixture
def slurmrestd() -> Iterator[Slurmrestd]:
    made = Slurmrestd()
    yield made
    made.close()


@pytest.fixture
def seen() -> dict[str, Any]:
    """What a node tells when all is well there; a test changes it."""
    good: dict[str, Any] = {
        "nonce": "n",
        "node": "n1",
        "python": {"path": "/usr/bin/python3", "version": "3.9.2"},
        "directory": {"uid": 1001, "me": 1001},
        "apptainer": {"path": "/usr/bin/apptainer", "version": "1.4.5"},
        "squashfuse": "/usr/bin/squashfuse_ll",
        "fuse": True,
        "sandbox": {"available": True, "why": "", "code": 0, "err": ""},
        "plain": {"code": 0, "err": ""},
        "devices": {"nvidia": ["nvidia0"], "control": ["nvidiactl", "nvidia-uvm"], "other": []},
        "settings": {"AccountingStoreFlags": "job_comment"},
        "registries": {"registry:5000": ""},
        "cache": {"path": "/var/tmp", "writable": True, "free_mib": 90000},
    }
    Findings.model_validate(good)
    return good
