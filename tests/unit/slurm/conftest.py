"""Small real HTTP servers, on loopback and on a unix socket, that count their connections."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest


class Server:
    """What was seen, and what is answered next."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.open_now = 0
        self.most_open = 0
        self.opened = 0
        self.lock = threading.Lock()
        self.delay = 0.0
        self.status = 200
        self.headers: dict[str, str] = {"Content-Type": "application/json"}
        self.body = json.dumps({"pings": [], "errors": [], "warnings": []}).encode()
        self.hang_up = 0  # so many requests are answered by closing the connection
        self.url = ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one write for head and body, or each answer waits for a delayed acknowledgement
    server: Any

    def setup(self) -> None:
        seen: Server = self.server.seen
        with seen.lock:
            seen.opened += 1
            seen.open_now += 1
            seen.most_open = max(seen.most_open, seen.open_now)
        super().setup()

    def finish(self) -> None:
        super().finish()
        with self.server.seen.lock:
            self.server.seen.open_now -= 1

    def handle_any(self) -> None:
        seen: Server = self.server.seen
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with seen.lock:
            seen.requests.append((self.command, self.path, dict(self.headers), body))
            hang_up = seen.hang_up > 0
            seen.hang_up -= hang_up
        if hang_up:
            self.close_connection = True
            return
        if seen.delay:
            time.sleep(seen.delay)
        self.send_response(seen.status)
        for name, value in seen.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in seen.headers:
            self.send_header("Content-Length", str(len(seen.body)))
        else:
            self.close_connection = True
        self.end_headers()
        self.wfile.write(seen.body)

    do_GET = do_POST = do_DELETE = handle_any

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: Any) -> None:
        pass


class TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 200


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server: ``start()`` on TCP, ``start("name.sock")`` on a socket; its address is in `url`."""
    running: list[Any] = []

    def make(socket_name: str | None = None) -> Server:
        seen = Server()
        server: Any
        if socket_name is None:
            server = TcpServer(("127.0.0.1", 0), Handler)
            seen.url = f"http://127.0.0.1:{server.server_address[1]}"
        else:
            path = tmp_path / socket_name
            server = UnixServer(str(path), Handler)
            seen.url = f"unix://{path}"
        server.seen = seen
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        running.append(server)
        return seen

    yield make
    for server in running:
        server.shutdown()
        server.server_close()
