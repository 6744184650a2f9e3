"""A receiver of SPANK events: takes them over TCP or a unix socket, checks signatures, keeps what came.

As a program (``python -m tests.fakes.spank_receiver URL KEY_FILE LOG LOCK``) it appends one JSON line for
each request to LOG and ends once nobody holds a shared lock on LOCK any more: test processes share it.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATH = "/spank/v1/events"
LONGEST = 4096


@dataclass(frozen=True)
class Received:
    """One request: what was answered, and the event if the body is one."""

    status: int
    signed: bool
    body: str
    event: dict[str, Any] | None
    at: float


def read_key(path: Path) -> bytes:
    """The key as the plugin reads it: without the one newline that may end it."""
    return path.read_bytes().removesuffix(b"\n")


class Receiver:
    """Listens from construction to `close()`; `answer` may change the status, or wait.

    Args:
        url: ``http://127.0.0.1:PORT/PATH`` or ``unix:///PATH``.
        key: what events must be signed with.
        kept: is called with each request, beside `received`.
    """

    def __init__(self, url: str, key: bytes, kept: Callable[[Received], None] | None = None) -> None:
        self.key = key
        self.received: list[Received] = []
        self.answer: Callable[[], int] = lambda: 204
        self._kept = kept
        self._lock = threading.Lock()
        parts = urlsplit(url)
        self.path = PATH if parts.scheme == "unix" else parts.path
        handler = type("Handler", (_Handler,), {"receiver": self})
        if parts.scheme == "unix":
            Path(parts.path).unlink(missing_ok=True)
            self._server: socketserver.BaseServer = _Unix(parts.path, handler)
        else:
            self._server = _Tcp((parts.hostname or "", parts.port or 0), handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """Its TCP port."""
        address = self._server.server_address
        assert isinstance(address, tuple)
        return int(address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def events(self) -> list[dict[str, Any]]:
        """The signed events, in the order of their coming."""
        with self._lock:
            return [one.event for one in self.received if one.signed and one.event is not None]

    def take(self, body: bytes, signature: str, path: str, kind: str) -> int:
        """Judge one request and keep it; the status to answer."""
        proof = "sha256=" + hmac.new(self.key, body, hashlib.sha256).hexdigest()
        signed = hmac.compare_digest(proof, signature)
        event = None
        try:
            found = json.loads(body)
            event = found if isinstance(found, dict) else None
        except ValueError:
            pass
        if path != self.path:
            status = 404
        elif len(body) >= LONGEST:
            status = 413
        elif not signed:
            status = 403
        elif event is None or kind != "application/json":
            status = 400
        else:
            status = self.answer()
        one = Received(status, signed, body.decode("utf-8", "replace"), event, time.time())
        with self._lock:
            self.received.append(one)
            if self._kept is not None:
                self._kept(one)
        return status


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver
    protocol_version = "HTTP/1.1"
    timeout = 10

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        status = self.receiver.take(
            body, self.headers.get("X-SRA-Signature", ""), self.path, self.headers.get("Content-Type", "")
        )
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def address_string(self) -> str:
        return "plugin"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what came is in `received`."""


class _Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024


class _Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 1024


def main(url: str, key_file: str, log: str, lock: str) -> None:
    """Run until the lock is free."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def keep(one: Received) -> None:
        os.write(out, json.dumps(asdict(one)).encode() + b"\n")

    # The lock is given back after the port is: who gets it next finds either a receiver or a free port.
    with Path(lock).open("w") as handle, Receiver(url, read_key(Path(key_file)), keep):
        print("ready", flush=True)
        fcntl.flock(handle, fcntl.LOCK_EX)


if __name__ == "__main__":
    main(*sys.argv[1:])
