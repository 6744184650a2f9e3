"""The plugin API with real sockets: a Slurm that hangs, many followers, strangers, its end."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi.testclient import TestClient

from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.server.app import create_app
from slurmrest_adapter.server.health import HealthWatch
from slurmrest_adapter.server.listen import bind, server, split, token_reader
from slurmrest_adapter.server.pools import Pools
from slurmrest_adapter.server.service import STALE_SECONDS, Service
from slurmrest_adapter.tracking.driver.loop import Loop
from tests.fakes.pods import UID, container, pod
from tests.fakes.world import World

TIME = "2026-01-02T03:04:05.000000000Z"


class Edge:
    """The application on a unix socket, served by a thread."""

    def __init__(self, directory: Path, allowed: tuple[int, ...], followers: int = 256) -> None:
        self.world = World(directory)
        self.pools = Pools(followers)
        self.loop = Loop(self.world.deps)
        health = HealthWatch(self.world.slurm, (), {}, self.world.clock, "alice")
        health.ask()
        # A socket's path may have 108 bytes; pytest's directories are longer.
        self.path = Path("/tmp") / f"sra-{uuid.uuid4().hex[:12]}.sock"
        app = create_app(Service(self.world.deps, self.loop, health), None, self.pools)
        self._server = server(app, allowed)
        listening = bind(f"unix://{self.path}", allowed)
        listening.listen()
        self._thread = threading.Thread(target=self._server.run, args=([listening],))
        self._thread.start()

    def ask(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(60)
        connection.sock.connect(str(self.path))
        connection.request(method, path, json.dumps(body))
        return connection.getresponse()

    def follow(self) -> http.client.HTTPResponse:
        return self.ask("GET", "/getLogs", {"PodUID": UID, "ContainerName": "main", "Opts": {"Follow": True}})

    def log(self, data: bytes) -> Path:
        record = self.world.deps.store.get(UID)
        assert record is not None
        path = self.world.shared / record.directory / "logs" / "main" / "0.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if os.geteuid() == 0:
            os.chown(path, self.world.uid, self.world.uid)
        return path

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.pools.close()
        self.path.unlink(missing_ok=True)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Edge]]:
    with contextlib.ExitStack() as stack:

        def start(*allowed: int, **options: Any) -> Edge:
            edge = Edge(tmp_path / uuid.uuid4().hex[:4], allowed or (os.geteuid(),), **options)
            stack.callback(edge.stop)
            return edge

        yield start


def test_hanging_creates_hold_up_nothing_else(
    serving: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = serving()
    go_on, begun = threading.Event(), threading.Semaphore(0)
    real = edge.world.slurm.submit

    def hang(*args: Any) -> Any:
        begun.release()
        assert go_on.wait(60)
        return real(*args)

    monkeypatch.setattr(edge.world.slurm, "submit", hang)
    pods = [pod(container(), uid=f"00000000-0000-4000-8000-{n:012d}", name=f"p{n}") for n in range(60)]
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda p=one: codes.append(edge.ask("POST", "/create", {"pod": p}).status))
        for one in pods
    ]
    try:
        for thread in threads:
            thread.start()
        assert begun.acquire(timeout=30)
        # Answered while every create still hangs; none of them can end before `go_on`.
        assert edge.ask("GET", "/status", pods[:3]).status == 200
        assert edge.ask("GET", "/status", []).status == 200
        assert edge.ask("POST", "/delete", pod(container(), uid="not-here")).status == 200
        missing = {"PodUID": "nobody", "ContainerName": "main", "Opts": {}}
        assert edge.ask("GET", "/getLogs", missing).status == 400
        assert codes == []
    finally:
        go_on.set()
        for thread in threads:
            thread.join()
    assert codes == [200] * 60


def test_lines_are_sent_together(serving: Callable[..., Edge]) -> None:
    edge = serving()
    edge.ask("POST", "/create", {"pod": pod(container())}).read()
    count = 20_000
    edge.log(b"".join(f"{TIME} stdout F {n}\n".encode() for n in range(count)))
    chunks = 0
    answer = edge.ask("GET", "/getLogs", {"PodUID": UID, "ContainerName": "main", "Opts": {}})
    data = b""
    while size := int(answer.fp.readline(), 16):
        data += answer.fp.read(size)
        assert answer.fp.read(2) == b"\r\n"
        chunks += 1
    assert data == b"".join(b"%d\n" % n for n in range(count))
    assert chunks < count / 100


def test_one_follower_too_many_is_told_so(serving: Callable[..., Edge]) -> None:
    edge = serving(followers=2)
    edge.ask("POST", "/create", {"pod": pod(container())}).read()
    path = edge.log(f"{TIME} stdout F first\n".encode())
    edge.loop.round()
    following = [edge.follow(), edge.follow()]
    assert [one.readline() for one in following] == [b"first\n"] * 2
    refused = edge.follow()
    assert (refused.status, b"too many logs" in refused.read()) == (503, True)
    # Prompt: a line arrives while the reader waits for more.
    with path.open("ab") as file:
        file.write(f"{TIME} stdout F second\n".encode())
    assert [one.readline() for one in following] == [b"second\n"] * 2
    edge.world.slurm.start(100)
    edge.world.slurm.end(100)
    edge.loop.round()
    assert [one.read() for one in following] == [b""] * 2
    # Their places are free again.
    assert edge.follow().status == 200


def test_a_dropped_peer_is_no_fault(serving: Callable[..., Edge], caplog: pytest.LogCaptureFixture) -> None:
    edge = serving(os.geteuid() + 1)
    with caplog.at_level(logging.ERROR), pytest.raises((OSError, http.client.HTTPException)):
        edge.ask("GET", "/healthz")
    edge.stop()
    assert [one.getMessage() for one in caplog.records] == []


@pytest.mark.parametrize("address", ["tcp://x", "http://", "unix:", "unix://relative", "http://x:port"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ConfigError, match=r"listen\.plugin"):
        split(address)


class TestToken:
    def test_one_that_has_gone(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        file = tmp_path / "token"
        file.write_text("sesame")
        file.chmod(0o600)
        health = HealthWatch(world.slurm, (), {}, world.clock, "alice")
        http_ = TestClient(create_app(Service(world.deps, Loop(world.deps), health), token_reader(file)))
        headers = {"Authorization": "Bearer sesame"}
        assert http_.get("/system-info", headers=headers).status_code == 200
        file.unlink()
        answer = http_.get("/system-info", headers=headers)
        assert answer.status_code == 503
        assert len(answer.text.splitlines()) == 1
        assert str(file) not in answer.text
        file.write_text("renewed")
        assert http_.get("/system-info", headers=headers).status_code == 401

    @pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True)])
    def test_one_that_everybody_may_read(self, tmp_path: Path, mode: int, warned: bool) -> None:
        file = tmp_path / "token"
        file.write_text("sesame")
        file.chmod(mode)
        with structlog.testing.capture_logs() as logged:
            assert token_reader(file)() == b"sesame"
        assert [one["log_level"] for one in logged] == ["warning"] * warned


def test_there_is_no_second_description(tmp_path: Path) -> None:
    world = World(tmp_path)
    health = HealthWatch(world.slurm, (), {}, world.clock, "alice")
    app = create_app(Service(world.deps, Loop(world.deps), health))
    for path in ("/openapi.json", "/docs", "/redoc"):
        assert TestClient(app).get(path).status_code == 404


class TestHealth:
    def test_an_answer_that_nobody_thought_of(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World(tmp_path)
        health = HealthWatch(world.slurm, (), {}, world.clock, "alice", interval=0.01)
        health.ask()
        before = health.now
        asked = threading.Semaphore(0)

        def broken(user: str | None = None) -> Any:
            asked.release()
            raise ZeroDivisionError("a fault")

        with monkeypatch.context() as patch, structlog.testing.capture_logs() as logged:
            patch.setattr(world.slurm, "nodes", broken)
            health.start()
            for _ in range(5):
                assert asked.acquire(timeout=30)
            assert health.alive
            assert (health.now.connected, health.now.capacity) == (False, before.capacity)
            assert "ZeroDivisionError" in health.now.error
        assert [one["event"] for one in logged if one["log_level"] == "error"] == [
            "the answer about nodes could not be understood"
        ]
        health.stop()
        health.ask()
        assert health.now.connected

    def test_readiness(self, tmp_path: Path) -> None:
        world = World(tmp_path)
        quiet = Loop(replace(world.deps), interval=3600)
        health = HealthWatch(world.slurm, (), {}, world.clock, "alice", interval=3600)
        service = Service(world.deps, quiet, health)
        quiet.start()
        health.ask()
        assert "health watch" in service.ready()
        health.start()
        assert service.ready() == ""
        world.clock.sleep(STALE_SECONDS + 1)
        assert "not answered for" in service.ready()
        health.stop()
        quiet.stop()


_SERVE = """
import sys
from pathlib import Path
from slurmrest_adapter.cli import build
from slurmrest_adapter.cli.main import main
from tests.fakes.world import World

slurm = World(Path(sys.argv.pop(1))).slurm
build.gateway_of = lambda settings: slurm
main()
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_good_end(tmp_path: Path, how: signal.Signals) -> None:
    path = Path("/tmp") / f"sra-{uuid.uuid4().hex[:12]}.sock"
    for name in ("state", "shared"):
        (tmp_path / name).mkdir(mode=0o711)
    (tmp_path / "state").chmod(0o700)
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "cluster": "lab",
                "state_dir": str(tmp_path / "state"),
                "shared_dir": str(tmp_path / "shared"),
                "identity": {
                    "min_uid": 0,
                    "map": [{"namespace": "physics", "user": "alice", "account": "physics"}],
                },
                "listen": {"plugin": f"unix://{path}", "allowed_uids": [os.geteuid()]},
            }
        )
    )
    words = [str(tmp_path / "fake"), "--config", str(config), "serve", "--log-json"]
    environment = {n: v for n, v in os.environ.items() if not n.startswith("SLURMREST_")}
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, *words],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env=environment,
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "serving" in line:
            break
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.connect(str(path))
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            if one.recv(4096).startswith(b"HTTP/1.1 200"):
                break
    process.send_signal(how)
    lines += process.communicate(timeout=60)[1].splitlines()
    path.unlink(missing_ok=True)
    assert process.returncode == 0, lines
    assert json.loads(lines[-1])["event"] == "stopped"
