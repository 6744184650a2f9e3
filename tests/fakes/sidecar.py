"""A sidecar in memory that speaks interLink's plugin protocol over a unix socket or TCP.

It keeps jobs, not answers: a created pod gets a job that waits, runs, ends; deletes end it; logs
are lines with times, and their options are obeyed. Outages, refusals and slowness are switches.
"""

from __future__ import annotations

import http.server
import itertools
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Status = dict[str, Any]


def rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class FakeJob:
    """One pod's job."""

    payload: dict[str, Any]
    number: int
    reason: str = "Resources"
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, list[tuple[datetime, bytes]]] = field(default_factory=dict)
    deleting: bool = False
    pod_reason: str = ""

    @property
    def pod(self) -> dict[str, Any]:
        return dict(self.payload["pod"])

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    def names(self, group: str) -> list[str]:
        return [container["name"] for container in self.pod["spec"].get(group) or ()]

    @property
    def ended(self) -> bool:
        return all("terminated" in self.states[name] for name in self.names("containers"))

    def statuses(self, group: str) -> list[Status]:
        images = {c["name"]: c.get("image", "") for c in self.pod["spec"].get(group) or ()}
        return [
            {
                "name": name,
                "image": images[name],
                "imageID": "",
                "ready": "running" in self.states[name],
                "started": "running" in self.states[name],
                "restartCount": 0,
                "state": self.states[name],
                "lastState": {},
            }
            for name in self.names(group)
        ]


class FakeSidecar:
    """Use it as a context manager; `listen` is what the configuration wants.

    Args:
        path: of the unix socket; None listens on a TCP port of loopback.
        token: the bearer token that is asked for.

    Attributes:
        jobs: by pod UID.
        created, deleted: every body of /create and /delete, repetitions too.
        polls: how many pods each status question named.
        refuse: words with which /create answers 400.
        not_now: words with which /create answers 503.
        down: connections are closed without an answer.
        slow_s: seconds before each answer.
        hold: a delete does not end the job until `end` is called.
        plain: answer interLink's own keys only.
        on_create: called with each new job.
    """

    def __init__(self, path: Path | None = None, token: str | None = None) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self.created: list[dict[str, Any]] = []
        self.deleted: list[dict[str, Any]] = []
        self.polls: list[int] = []
        self.refuse: str | None = None
        self.not_now: str | None = None
        self.down = False
        self.slow_s = 0.0
        self.hold = False
        self.plain = False
        self.slurm_connected = True
        self.resources: dict[str, Any] = {
            "cpu": "64",
            "memory": "256000Mi",
            "pods": "1000",
            "accelerators": [{"resourceType": "nvidia.com/gpu", "available": "8"}],
        }
        self.taints: list[dict[str, str]] | None = None
        self.followers = 0
        self.on_create: Callable[[FakeJob], None] = lambda job: None
        self.token = token
        self._path = path
        self._numbers = itertools.count(100)
        self.changed = threading.Condition(threading.RLock())
        self._server = self._make_server()

    @property
    def listen(self) -> str:
        if self._path is not None:
            return f"unix://{self._path}"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeSidecar:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.down = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    # What happens in Slurm.

    def job(self, name: str) -> FakeJob:
        """The newest job of the pod called so."""
        return [job for job in self.jobs.values() if job.pod["metadata"]["name"] == name][-1]

    def start(self, job: FakeJob) -> None:
        """The job runs: init containers are done, the others run."""
        with self.changed:
            now = rfc3339(datetime.now(UTC))
            for name in job.names("initContainers"):
                job.states[name] = {
                    "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
                }
            for name in job.names("containers"):
                job.states[name] = {"running": {"startedAt": now}}
            self.changed.notify_all()

    def end(self, job: FakeJob, code: int = 0, reason: str = "", message: str = "") -> None:
        """Every container that has not ended ends now."""
        with self.changed:
            now = rfc3339(datetime.now(UTC))
            for name in [*job.names("initContainers"), *job.names("containers")]:
                if "terminated" not in job.states[name]:
                    begun = job.states[name].get("running", {}).get("startedAt", now)
                    job.states[name] = {
                        "terminated": {
                            "exitCode": code,
                            "reason": reason or ("Completed" if code == 0 else "Error"),
                            "message": message or f"Slurm job {job.number} ended",
                            "startedAt": begun,
                            "finishedAt": now,
                        }
                    }
            self.changed.notify_all()

    def write(self, job: FakeJob, container: str, text: str, when: datetime | None = None) -> None:
        """A container prints; the text may hold several lines."""
        with self.changed:
            for line in text.encode().splitlines(keepends=True):
                job.logs.setdefault(container, []).append((when or datetime.now(UTC), line))
            self.changed.notify_all()

    # The wire.

    def create(self, body: Any) -> tuple[int, Any]:
        with self.changed:
            self.created.append(body)
            if self.not_now is not None:
                return 503, self.not_now
            if self.refuse is not None:
                return 400, self.refuse
            uid = body["pod"]["metadata"]["uid"]
            if uid not in self.jobs:
                job = FakeJob(body, next(self._numbers))
                for name in [*job.names("initContainers"), *job.names("containers")]:
                    words = f"Slurm job {job.number} is queued: {job.reason}"
                    job.states[name] = {"waiting": {"reason": "ContainerCreating", "message": words}}
                self.jobs[uid] = job
                self.on_create(job)
            return 200, {"PodUID": uid, "PodJID": str(self.jobs[uid].number)}

    def delete(self, body: Any) -> tuple[int, Any]:
        with self.changed:
            self.deleted.append(body)
            job = self.jobs.get(body["metadata"]["uid"])
            if job is not None:
                job.deleting = True
                if not self.hold:
                    self.end(job, 143, message="cancelled by the pod's deletion")
            return 200, "ok"

    def status(self, body: Any) -> tuple[int, Any]:
        with self.changed:
            if not body:
                return 200, self._ping()
            self.polls.append(len(body))
            return 200, [self._entry(pod) for pod in body]

    def _ping(self) -> dict[str, Any]:
        answer = {"status": "ok", "slurm_connected": self.slurm_connected, "resources": self.resources}
        return answer if self.taints is None else {**answer, "taints": self.taints}

    def _entry(self, pod: dict[str, Any]) -> dict[str, Any]:
        metadata = pod["metadata"]
        job = self.jobs.get(metadata["uid"])
        entry: dict[str, Any] = {"name": metadata["name"], "namespace": metadata["namespace"]}
        entry |= {"UID": metadata["uid"], "JID": "", "containers": [], "initContainers": []}
        if job is None:
            return entry
        entry["JID"] = str(job.number)
        entry["containers"] = job.statuses("containers")
        entry["initContainers"] = job.statuses("initContainers")
        if not self.plain:
            entry["reason"] = job.pod_reason
        return entry

    def logs(self, body: dict[str, Any]) -> tuple[int, Iterator[bytes] | str]:
        job = self.jobs.get(body["PodUID"])
        if job is None or body["ContainerName"] not in job.states:
            return 400, f"pod {body['PodUID']} has no container {body['ContainerName']}"
        return 200, self._lines(job, body["ContainerName"], body.get("Opts") or {})

    def _lines(self, job: FakeJob, container: str, options: dict[str, Any]) -> Iterator[bytes]:
        since = _since(options)
        with self.changed:
            lines = [line for line in job.logs.get(container, []) if line[0] >= since]
            seen = len(job.logs.get(container, []))
        if options.get("Tail"):
            lines = lines[-options["Tail"] :]
        left = options.get("Bytes") or None
        while True:
            for when, line in lines:
                text = rfc3339(when).encode() + b" " + line if options.get("Timestamps") else line
                if left is not None:
                    text, left = text[:left], left - len(text[:left])
                yield text
                if left == 0:
                    return
            if not options.get("Follow"):
                return
            with self.changed:
                while len(job.logs.get(container, [])) == seen:
                    if "terminated" in job.states[container] or self.down:
                        return
                    yield b""  # lets the server notice a reader that has left
                    self.changed.wait(0.05)
                lines = job.logs[container][seen:]
                seen += len(lines)

    def _make_server(self) -> Any:
        handler = type("Handler", (_Handler,), {"sidecar": self})
        if self._path is None:
            return _TcpServer(("127.0.0.1", 0), handler)
        self._path.unlink(missing_ok=True)
        return _UnixServer(str(self._path), handler)


def _since(options: dict[str, Any]) -> datetime:
    if options.get("SinceSeconds"):
        return datetime.now(UTC) - timedelta(seconds=options["SinceSeconds"])
    if options.get("SinceTime"):
        return datetime.fromisoformat(options["SinceTime"])
    return datetime.min.replace(tzinfo=UTC)


class _TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


class _UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sidecar: FakeSidecar

    def address_string(self) -> str:
        return "peer"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({"/status": self.sidecar.status, "/getLogs": self.sidecar.logs})

    def do_POST(self) -> None:
        self._answer({"/create": self.sidecar.create, "/delete": self.sidecar.delete})

    def _answer(self, routes: dict[str, Callable[[Any], tuple[int, Any]]]) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.sidecar.slow_s:
            time.sleep(self.sidecar.slow_s)
        if self.sidecar.down:
            self.close_connection = True
            return
        wanted = self.sidecar.token
        if wanted is not None and self.headers.get("Authorization") != f"Bearer {wanted}":
            return self._send(401, b"a token is needed")
        if self.path not in routes:
            return self._send(404, b"no such call")
        code, answer = routes[self.path](json.loads(raw) if raw else None)
        if isinstance(answer, str):
            return self._send(code, answer.encode())
        if isinstance(answer, dict | list):
            return self._send(code, json.dumps(answer).encode())
        self._stream(code, answer)

    def _send(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, code: int, pieces: Iterator[bytes]) -> None:
        self.send_response(code)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.sidecar.followers += 1
        try:
            for piece in pieces:
                if piece:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                elif self._has_left():
                    self.close_connection = True
                    return
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            self.sidecar.followers -= 1

    def _has_left(self) -> bool:
        self.connection.setblocking(False)
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK) == b"")
        except BlockingIOError:
            return False
        finally:
            self.connection.setblocking(True)
