"""Where events are posted, with real sockets: what is taken, what is refused, floods and slow posters."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.server import events as module
from slurmrest_adapter.server.app import create_app
from slurmrest_adapter.server.events import EventListener
from slurmrest_adapter.server.health import HealthWatch
from slurmrest_adapter.server.listen import bind, server
from slurmrest_adapter.server.pools import Pools
from slurmrest_adapter.server.service import Service
from slurmrest_adapter.sources.spankpost import path_of
from slurmrest_adapter.store.events import SqliteEvents
from slurmrest_adapter.tracking.driver.events import Intake
from slurmrest_adapter.tracking.driver.loop import Loop
from slurmrest_adapter.tracking.driver.submit import submit
from tests.fakes.pods import UID, pod
from tests.fakes.spank import KEY, posted
from tests.fakes.world import World

PATH = "/spank/v1/events"


class Edge:
    """A listener, and the plugin API beside it in the same process."""

    def __init__(self, directory: Path, address: str) -> None:
        self.world = World(directory)
        self.events = SqliteEvents(self.world.state / "events.sqlite3", self.world.clock)
        self.world.deps = replace(self.world.deps, events=self.events)
        self.loop = Loop(self.world.deps)
        self.hints: list[tuple[str, bool]] = []
        self.intake = Intake(
            self.events, self.world.deps.store, KEY, "lab",
            lambda uid, ended: self.hints.append((uid, ended)), self.world.clock,
        )  # fmt: skip
        self._unix = address.removeprefix("unix://") if address.startswith("unix") else ""
        listening = bind(address, (), "spank.events")
        self.address: Any = listening.getsockname()
        self.listener = EventListener(listening, path_of(address), self.intake)
        self.listener.start()

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX if self._unix else socket.AF_INET)
        made.settimeout(60)
        made.connect(self.address)
        return made

    def raw(self, data: bytes) -> int:
        """The code of the answer to these bytes; 0 for none."""
        with contextlib.closing(self.connect()) as client, contextlib.suppress(ConnectionError):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            answer = client.makefile("rb").read()
            return int(answer.split(b" ")[1]) if answer else 0
        return 0

    def post(self, body: bytes, signature: str | None, path: str = PATH, method: str = "POST") -> int:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = self.connect()
        headers = {"Content-Type": "application/json", "Connection": "close"}
        with contextlib.closing(connection):
            connection.request(
                method,
                path,
                body,
                headers if signature is None else {**headers, "X-SRA-Signature": signature},
            )
            return connection.getresponse().status

    def event(self, kind: str = "allocated", **changes: Any) -> int:
        return self.post(*posted(kind, **changes))

    def counted(self) -> dict[str, int]:
        return {name: count for name, count in self.intake.counters().items() if count}


@pytest.fixture(params=["tcp", "unix"])
def edge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Edge]:
    unix = f"unix:///tmp/sra-{uuid.uuid4().hex[:12]}.sock"
    # Port 0 is no address for nodes, but the kernel's choice is good for a test.
    made = Edge(tmp_path, unix if request.param == "unix" else f"http://127.0.0.1:0{PATH}")
    submit(made.world.deps, pod())
    yield made
    made.listener.stop()


@pytest.fixture
def tcp(tmp_path: Path) -> Iterator[Edge]:
    made = Edge(tmp_path, f"http://127.0.0.1:0{PATH}")
    submit(made.world.deps, pod())
    yield made
    made.listener.stop()


def test_an_event_is_answered_when_it_is_kept(edge: Edge) -> None:
    assert edge.event(gpus=[1]) == 204
    (kept,) = edge.events.of_job(100)
    assert kept.gpus == (1,)
    assert edge.event(gpus=[1]) == 204  # again
    assert edge.hints == [(UID, False)]
    assert edge.counted() == {"taken": 1, "duplicate": 1}


def test_what_each_is_answered(edge: Edge) -> None:
    good, signature = posted()
    assert edge.post(good, None) == 403
    assert edge.post(good, "sha256=" + "0" * 64) == 403
    assert edge.post(good, "x" * 4000) == 403
    assert edge.post(*posted(v=2)) == 400
    assert edge.post(*posted(cluster="other")) == 204
    assert edge.post(*posted(job=9)) == 204
    assert edge.post(*posted("test", job=None)) == 204
    assert edge.post(good, signature, path="/") == 404
    assert edge.post(good, signature, path="/create") == 404
    assert edge.post(good, signature, path=PATH + "/") == 404
    assert edge.post(good, signature, method="GET") == 405
    assert edge.post(b"x" * 4097, signature) == 413
    assert edge.events.of_job(100) == []
    assert edge.hints == []
    assert edge.counted() == {"forged": 3, "malformed": 1, "other_cluster": 1, "unknown_job": 1, "test": 1}


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (b"", {0}),
        (b"\0\0\0\0", {400}),
        (b"\x16\x03\x01\x02\x00\x01", {400}),  # TLS
        (b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\n", {400}),
        (b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc", {400}),
        (b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", {413}),
        (b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", {400}),
        (b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20000, {431, 0}),
        (
            b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"800\r\n" + b"z" * 2048 + b"\r\n") * 3 + b"0\r\n\r\n",
            {413, 0},
        ),
    ],
)  # fmt: skip
def test_bytes_that_are_no_request(edge: Edge, data: bytes, codes: set[int]) -> None:
    assert edge.raw(data) in codes
    assert edge.event() == 204


def test_a_store_that_cannot_write_is_tried_later(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(edge.events, "add", full)
        assert edge.event() == 503
    assert edge.event() == 204
    assert edge.counted() == {"taken": 1}


def test_many_at_once_are_each_taken_once(edge: Edge) -> None:
    with ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda n: edge.event(seq=n % 150 + 1), range(300)))
    assert set(codes) == {204}
    assert len(edge.events.of_job(100)) == 150
    assert edge.counted() == {"taken": 150, "duplicate": 150}


def test_who_posts_slowly_is_left(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.3)
    with contextlib.closing(edge.connect()) as slow:
        slow.sendall(b"POST /")
        assert slow.recv(100) == b""


def test_one_address_cannot_take_every_connection(tcp: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OF_AN_ADDRESS", 4)
    held = [tcp.connect() for _ in range(4)]
    for one in held:
        one.sendall(b"POST /")
    until = time.monotonic() + 60
    while sum(tcp.listener._of_address.values()) < 4:
        assert time.monotonic() < until
        time.sleep(0.01)
    with contextlib.closing(tcp.connect()) as fifth, contextlib.suppress(ConnectionError):
        fifth.sendall(b"POST /")
        assert fifth.recv(100) == b""
    for one in held:
        one.close()
    while tcp.listener._of_address:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert tcp.event() == 204


def test_connections_are_given_back(edge: Edge) -> None:
    for _ in range(30):
        edge.connect().close()
        edge.raw(b"nonsense\r\n\r\n")
        assert edge.post(b"x", None) == 403
    until = time.monotonic() + 60
    while edge.listener._of_address:
        assert time.monotonic() < until
        time.sleep(0.01)


def request(body: bytes, signature: str, *headers: str) -> bytes:
    words = [
        f"POST {PATH} HTTP/1.1",
        "Host: x",
        f"Content-Length: {len(body)}",
        f"X-SRA-Signature: {signature}",
    ]
    return "\r\n".join([*words, *headers, "", ""]).encode() + body


def answers(client: socket.socket, count: int) -> list[int]:
    """The codes of so many answers; fewer when the connection ends before."""
    text = b""
    while text.count(b"\r\n\r\n") < count:
        got = client.recv(4096)
        if not got:
            break
        text += got
    return [int(one.split(b" ")[1]) for one in text.split(b"\r\n\r\n")[:-1]]


def test_several_over_one_connection(edge: Edge) -> None:
    with contextlib.closing(edge.connect()) as client:
        client.sendall(request(*posted(seq=1)))
        assert answers(client, 1) == [204]
        client.sendall(request(*posted(seq=2)) + request(*posted(seq=3)))
        assert answers(client, 2) == [204, 204]
        client.sendall(request(*posted(seq=4)) + request(*posted(seq=5), "Connection: close"))
        assert answers(client, 3) == [204, 204]  # and that was all
    assert len(edge.events.of_job(100)) == 5


def test_who_is_not_welcome_may_not_stay(edge: Edge) -> None:
    good, signature = posted()
    for body, proof, code in (
        (good, "sha256=00", 403),
        (*posted(v=2), 400),
        (*posted(cluster="other"), 204),
        (*posted("test", job=None), 204),
    ):
        with contextlib.closing(edge.connect()) as client:
            client.sendall(request(body, proof) + request(good, signature))
            assert answers(client, 2)[:1] == [code]
    assert len(edge.events.of_job(100)) <= 1


def test_who_stays_without_a_word_is_left(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.3)
    with contextlib.closing(edge.connect()) as client:
        client.sendall(request(*posted()))
        assert answers(client, 1) == [204]
        assert client.recv(100) == b""


def test_a_refusal_arrives_though_more_is_sent(edge: Edge) -> None:
    for _ in range(20):
        with contextlib.closing(edge.connect()) as client:
            client.sendall(f"POST {PATH} HTTP/1.1\r\nContent-Length: 50000\r\n\r\n".encode())
            client.sendall(b"x" * 50000)
            assert answers(client, 1) == [413]


def test_who_never_stops_sending_is_left(edge: Edge) -> None:
    with contextlib.closing(edge.connect()) as client, pytest.raises(ConnectionError):  # noqa: PT012
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while True:
            client.sendall(b"x" * 65536)


@contextlib.contextmanager
def flood(work: Callable[[], object], threads: int) -> Iterator[list[int]]:
    """Do it again and again in threads; how often it was done."""
    stop, done = threading.Event(), [0] * threads

    def run(number: int) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                work()
            done[number] += 1

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield done
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def test_neither_a_flood_nor_slow_posters_stop_the_plugin_api(
    tcp: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = HealthWatch(tcp.world.slurm, (), {}, tcp.world.clock, "alice")
    health.ask()
    tcp.loop.round()
    pools = Pools()
    app = create_app(Service(tcp.world.deps, tcp.loop, health, tcp.intake), None, pools)
    api = server(app, (0,))
    listening = bind("http://127.0.0.1:0", ())
    port = listening.getsockname()[1]
    listening.listen()
    thread = threading.Thread(target=api.run, args=([listening],))
    thread.start()

    def status() -> int:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
            client.request("GET", "/status", b'[{"metadata": {"uid": "%s"}}]' % UID.encode())
            return client.getresponse().status

    def slow() -> None:
        with contextlib.closing(tcp.connect()) as client:
            client.sendall(b"POST /")
            client.recv(100)

    forged = ("x" * 100).encode(), "sha256=" + "0" * 64
    try:
        with flood(lambda: tcp.post(*forged), 4) as posts, flood(slow, 150) as slows:
            answers = [status() for _ in range(50)]
        assert answers == [200] * 50
        assert sum(posts) > 50
        assert sum(slows) >= 150
        assert tcp.event() == 204
        assert tcp.events.of_job(100)
    finally:
        api.should_exit = True
        thread.join()
        pools.close()


@pytest.mark.parametrize(
    ("address", "path"),
    [("http://h:1/a/b", "/a/b"), ("http://h:1", PATH), ("http://h:1/", PATH), ("unix:///run/x.sock", PATH)],
)
def test_the_path_is_the_one_that_the_plugin_takes(address: str, path: str) -> None:
    assert path_of(address) == path


def test_it_ends_with_connections_open(edge: Edge) -> None:
    held = [edge.connect() for _ in range(5)]
    edge.listener.stop()
    assert not edge.listener.alive
    with pytest.raises(OSError):
        edge.connect()
    for one in held:
        one.close()


def test_an_address_that_cannot_be_had() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=r"^spank\.events: cannot listen on"):
            bind(f"http://127.0.0.1:{port}{PATH}", (), "spank.events")


def test_counters_stand_in_the_health_document(tcp: Edge) -> None:
    health = HealthWatch(tcp.world.slurm, (), {}, tcp.world.clock, "alice")
    tcp.event()
    tcp.post(b"x", None)
    told = Service(tcp.world.deps, tcp.loop, health, tcp.intake).system_info()["spank_events"]
    assert (told["taken"], told["forged"], told["looks"]) == (1, 1, 0)
    assert "spank_events" not in Service(tcp.world.deps, tcp.loop, health).system_info()
