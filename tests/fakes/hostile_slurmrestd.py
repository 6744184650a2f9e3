"""A slurmrestd that answers what real ones were heard to say, as is or spoilt in one way.

A real HTTP server on loopback. It serves one API version from a recording (see `record_slurmrestd`):
every operation the gateway uses, and slurmrestd's own manners around them: an unknown path is 404 as
text, no token is 401 as text, a content type that is not exactly JSON 400 or 415, a request line that is
too long 400 with nothing (24.11) or 500 "Insane message length" (26.05). A `Mood` spoils every answer
but ping's, so that a gateway gets as far as asking.
"""

from __future__ import annotations

import copy
import json
import re
import socketserver
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "unit" / "data" / "slurmrestd"
# Request lines past this fail (facts: about 80 kB).
LONGEST_LINE = 80_000
_ROUTES = (
    ("GET", r"/slurm/V/ping/", "ping"),
    ("GET", r"/slurm/V/partitions/", "partitions"),
    ("GET", r"/slurm/V/nodes/", "nodes"),
    ("POST", r"/slurm/V/job/submit", "submit"),
    ("GET", r"/slurm/V/job/\d+", "job"),
    ("POST", r"/slurm/V/job/\d+", "update"),
    ("DELETE", r"/slurm/V/job/\d+", "kill"),
    ("DELETE", r"/slurm/V/jobs/", "kill_many"),
    ("GET", r"/slurm/V/jobs/state/", "states"),
    ("GET", r"/slurm/V/jobs/", "jobs"),
    ("GET", r"/slurmdb/V/job/\d+", "account"),
    ("GET", r"/slurmdb/V/jobs/", "accounts"),
)


@dataclass(frozen=True)
class Answer:
    """One HTTP answer. `cut` bytes at the end of the body are announced and never sent."""

    status: int = 200
    content_type: str = "application/json"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    cut: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def with_json(self, document: object) -> Answer:
        """The same answer with another document; NaN is written as slurmrestd writes it."""
        return replace(self, body=json.dumps(document).encode())


Mood = Callable[[Answer], Answer]


@dataclass
class Heard:
    """One request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Slurmrestd:
    """The fake; `mood` may be changed between calls."""

    release: str
    version: str
    job_id: int
    job_name: str
    answers: dict[str, Answer]
    url: str = ""
    mood: Mood = field(default=lambda answer: answer)
    heard: list[Heard] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Slurmrestd:
        """From a recording."""
        document = json.loads(path.read_text())
        answers = {
            name: Answer(kept["status"], kept["type"], json.dumps(kept["body"]).encode())
            for name, kept in document["answers"].items()
        }
        version = path.stem.partition("-")[2]
        return cls(document["release"], version, document["job_id"], document["name"], answers)

    def answer(self, heard: Heard) -> Answer:
        """What it says to a request."""
        line = f"{heard.method} {heard.path} HTTP/1.1"
        if len(line) > LONGEST_LINE:
            if self.release == "24.11":
                return Answer(400, "text/plain")
            return Answer(500, "text/plain", b"Insane message length")
        if heard.headers.get("content-type", "application/json") != "application/json":
            return Answer(415 if self.release != "24.11" else 400, "text/plain", b"unsupported content type")
        if not heard.headers.get("x-slurm-user-token"):
            return Answer(401, "text/plain", b"Authentication failure")
        path = heard.path.partition("?")[0]
        for method, pattern, name in _ROUTES:
            exact = pattern.replace("V", re.escape(self.version))
            if method == heard.method and re.fullmatch(exact, path):
                said = self.answers[name]
                if name == "kill_many":
                    said = _about(said, json.loads(heard.body or b"{}").get("jobs", ()))
                return said if name == "ping" else self.mood(said)
        return Answer(404, "text/plain", b"Unable find requested URL.")

    @contextmanager
    def serving(self) -> Iterator[Slurmrestd]:
        """Listen on loopback while in the context."""
        with _Server(("127.0.0.1", 0), _Handler) as server:
            server.fake = self
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


def _about(said: Answer, job_ids: Collection[str]) -> Answer:
    """The answer to a bulk cancel, with the rows of these jobs alone."""
    document = said.json
    rows = [row for row in document["status"] if row["step_id"] in job_ids]
    return said.with_json({**document, "status": rows})


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 200
    fake: Slurmrestd


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one write for head and body, or each answer waits for a delayed acknowledgement
    server: _Server

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        heard = Heard(self.command, self.path, headers, body)
        self.server.fake.heard.append(heard)
        answer = self.server.fake.answer(heard)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) - answer.cut])
        if answer.cut:
            self.close_connection = True

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _any

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Python's own server refuses lines over 64 kB; slurmrestd takes 80 and then says its own."""
        if code == 414:
            answer = self.server.fake.answer(Heard("GET", "/" + "x" * LONGEST_LINE, {}, b""))
            self.request_version, self.command = "HTTP/1.1", "GET"
            self.close_connection = True
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
            return
        super().send_error(code, message, explain)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def recordings() -> list[Path]:
    """All recordings, by release and version."""
    return sorted(RECORDED.glob("*.json"))


# Moods


def nulls(answer: Answer) -> Answer:
    """Every list and object of each row is null; what is above the rows stays."""

    def spoilt(node: Any, depth: int) -> Any:
        if isinstance(node, dict):
            return {k: spoilt(v, depth + 1) if depth < 2 else _null(v) for k, v in node.items()}
        if isinstance(node, list):
            return [spoilt(item, depth + 1) for item in node]
        return node

    return answer.with_json(spoilt(answer.json, 0))


def _null(value: Any) -> Any:
    return None if isinstance(value, dict | list) else value


def all_null(answer: Answer) -> Answer:
    """Every value at the top is null."""
    return answer.with_json(dict.fromkeys(answer.json))


def new_words(answer: Answer) -> Answer:
    """Every list of words gains one that nobody has heard, and every object a new key."""

    def spoilt(node: Any) -> Any:
        if isinstance(node, dict):
            return {**{key: spoilt(value) for key, value in node.items()}, "new_in_27.05": {"x": [1, None]}}
        if isinstance(node, list) and node and all(isinstance(item, str) for item in node):
            return [*node, "NEVER_HEARD"]
        if isinstance(node, list):
            return [spoilt(item) for item in node]
        return node

    return answer.with_json(spoilt(answer.json))


def not_numbers(answer: Answer) -> Answer:
    """Some numbers are NaN: Python's json writes the bare word, as Slurm does."""
    document = copy.deepcopy(answer.json)
    document["not_a_number"] = float("nan")
    for row in document.get("jobs") or document.get("nodes") or []:
        row["cpu_load"] = float("nan")
    return answer.with_json(document)


def text(answer: Answer) -> Answer:
    """Plain text under 200."""
    return replace(answer, content_type="text/plain", body=b"something else entirely")


def page(answer: Answer) -> Answer:
    """A proxy's page under 200."""
    return replace(answer, content_type="text/html", body=b"<html>maintenance</html>")


def errors(answer: Answer) -> Answer:
    """A 200 that carries an error and no data."""
    row = {"description": "d", "error_number": 2066, "error": "Invalid qos specification", "source": "s"}
    return answer.with_json({"errors": [row], "warnings": [], "meta": answer.json.get("meta")})


def no_job_id(answer: Answer) -> Answer:
    """A 200 with everything but a job id, and a warning."""
    document = {key: value for key, value in answer.json.items() if key not in ("job_id", "result")}
    warning = {"description": "Expected integer, but got string", "source": "#/job/tasks/"}
    return answer.with_json({**document, "warnings": [warning]})


def cut(answer: Answer) -> Answer:
    """The connection is closed in the middle of the body."""
    return replace(answer, cut=len(answer.body) // 2)


def broken_off(answer: Answer) -> Answer:
    """The body ends in the middle, and its length says so."""
    return replace(answer, body=answer.body[: len(answer.body) // 2])


def empty(answer: Answer) -> Answer:
    """Nothing, under 200."""
    return replace(answer, body=b"")


def insane(answer: Answer) -> Answer:
    """26.05's words for a request line that is too long; they read like an outage."""
    return Answer(500, "text/plain", b"Insane message length")


def other_shape(answer: Answer) -> Answer:
    """Lists are numbers and objects are lists."""
    return answer.with_json(
        {
            k: 5 if isinstance(v, list) else [1] if isinstance(v, dict) else {"x": v}
            for k, v in answer.json.items()
        }
    )


def redirect(to: str) -> Mood:
    """Everything is somewhere else."""
    return lambda answer: Answer(307, "text/html", b"", (("Location", to),))
