"""Delivering a spool to servers that are away, refuse, break off, or are killed half-way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.sources import spool
from slurmrest_adapter.sources.spankpost import NotDelivered
from slurmrest_adapter.sources.spool import BadSpool, Drained, drain
from tests.fakes.spank import posted

ROOT = Path(__file__).parents[3]


def fill(directory: Path, count: int) -> list[str]:
    """So many events, as the plugin spools them; their names."""
    names = []
    for number in range(1, count + 1):
        body, signature = posted(seq=number)
        name = f"{1_700_000_000_000_000_000 + number:020d}-0123456789abcdef-{number:06d}.event"
        (directory / name).write_bytes(signature.encode() + b"\n" + body)
        names.append(name)
    return names


class Server:
    """Takes events; what it does with each is a test's choice."""

    def __init__(self, answer: Callable[[int], int] = lambda _: 204) -> None:
        self.answer = answer
        self.bodies: list[bytes] = []

    def __call__(self, body: bytes, signature: str) -> int:
        assert signature.startswith("sha256=")
        self.bodies.append(body)
        return self.answer(len(self.bodies))


def drained(directory: Path, server: Server) -> tuple[Drained, float]:
    slept = [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    return drain(directory, server, sleep), slept[0]


def test_all_in_the_order_of_their_names(tmp_path: Path) -> None:
    fill(tmp_path, 30)
    (tmp_path / "dropped").write_text("7\n")
    server = Server()
    done, _ = drained(tmp_path, server)
    assert (done.delivered, done.kept, done.stopped, done.dropped) == (30, 0, "", 7)
    assert server.bodies == [posted(seq=n)[0] for n in range(1, 31)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dropped"]


def test_only_events_are_touched(tmp_path: Path) -> None:
    others = ["down", "dropped", ".new-00000000000000000001-0123456789abcdef-000001.event", "x.event", "jobs"]
    for name in others:
        (tmp_path / name).write_text("x")
    fill(tmp_path, 1)
    done, _ = drained(tmp_path, Server())
    assert (done.delivered, done.dropped) == (1, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no signature and event"),
        (b"sha256=00", "is no signature and event"),
        (b"sha256=00\n", "is no signature and event"),
        (b"\n" + b"x" * 5000, "is no signature and event"),
        (b"x" * 300 + b"\nbody", "is no signature and event"),
        (b"x" * 100_000, "is no signature and event"),
    ],
)
def test_a_file_that_is_no_event_stays_and_stops_no_other(tmp_path: Path, data: bytes, why: str) -> None:
    first, *_ = fill(tmp_path, 3)
    (tmp_path / first).write_bytes(data)
    server = Server()
    done, _ = drained(tmp_path, server)
    assert (done.delivered, done.refused) == (2, {first: why})
    assert (tmp_path / first).read_bytes() == data


def test_nothing_but_a_file_is_read(tmp_path: Path) -> None:
    link, fifo, folder, last = fill(tmp_path, 4)
    for name in (link, fifo, folder):
        (tmp_path / name).unlink()
    secret = tmp_path / "secret"
    secret.write_bytes(b"sha256=00\nsecret")
    (tmp_path / link).symlink_to(secret)
    os.mkfifo(tmp_path / fifo)
    (tmp_path / folder).mkdir()
    server = Server()
    done, _ = drained(tmp_path, server)
    assert (done.delivered, set(done.refused)) == (1, {link, fifo, folder})
    assert server.bodies == [posted(seq=4)[0]]
    assert not (tmp_path / last).exists()


@pytest.mark.parametrize("code", [400, 403, 404, 413, 500, 301])
def test_what_is_refused_stays(tmp_path: Path, code: int) -> None:
    names = fill(tmp_path, 3)
    done, _ = drained(tmp_path, Server(lambda n: code if n == 2 else 204))
    assert (done.delivered, done.refused, done.left) == (2, {names[1]: f"answered {code}"}, 0)
    assert [path.name for path in tmp_path.iterdir()] == [names[1]]


@pytest.mark.parametrize("code", [429, 503])
def test_later_is_tried_later(tmp_path: Path, code: int) -> None:
    fill(tmp_path, 2)
    done, slept = drained(tmp_path, Server(lambda n: code if n < 4 else 204))
    assert (done.delivered, done.kept) == (2, 0)
    assert slept > 0
    fill(tmp_path, 2)
    done, _ = drained(tmp_path, Server(lambda n: code))
    assert (done.delivered, done.left) == (0, 2)
    assert f"answered {code}" in done.stopped


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_server_that_goes_away_costs_nothing(
    tmp_path_factory: pytest.TempPathFactory, count: int, goes: int
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    fill(directory, count)

    def answer(number: int) -> int:
        if number > goes:
            raise NotDelivered("away")
        return 204

    server = Server(answer)
    done, _ = drained(directory, server)
    assert done.delivered + done.kept == count
    assert spool.waiting(directory) == done.left == max(0, count - goes)
    assert bool(done.stopped) is (count > goes)
    done, _ = drained(directory, Server())
    assert done.kept == 0
    assert spool.waiting(directory) == 0


def test_what_comes_meanwhile_goes_along(tmp_path: Path) -> None:
    fill(tmp_path, 3)

    def answer(number: int) -> int:
        if number == 2:
            body, signature = posted(seq=99)
            name = "01800000000000000000-0123456789abcdef-000099.event"
            (tmp_path / name).write_bytes(signature.encode() + b"\n" + body)
        return 204

    done, _ = drained(tmp_path, Server(answer))
    assert (done.delivered, done.kept) == (4, 0)


def test_two_deliveries_at_once(tmp_path: Path) -> None:
    fill(tmp_path, 200)
    server, results = Server(), list[Drained]()
    workers = [
        threading.Thread(target=lambda: results.append(drain(tmp_path, server, time.sleep))) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {one.kept for one in results} == {0}
    assert set(server.bodies) == {posted(seq=n)[0] for n in range(1, 201)}
    assert spool.waiting(tmp_path) == 0


@pytest.mark.parametrize("where", ["nowhere", "file"])
def test_no_spool(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSpool, match=where):
        drained(tmp_path / where, Server())


_KILLED = """
import sys
from pathlib import Path
from slurmrest_adapter.sources import spool
taken = open(sys.argv[2], "ab", buffering=0)
def post(body, signature):
    taken.write(body + b"\\n")
    print(flush=True)
    return 204
spool.drain(Path(sys.argv[1]), post, lambda seconds: None)
"""


def test_killed_half_way_nothing_is_lost(tmp_path: Path) -> None:
    directory, taken = tmp_path / "spool", tmp_path / "taken"
    directory.mkdir()
    fill(directory, 500)
    kills = 0
    while spool.waiting(directory):
        process = subprocess.Popen(
            [sys.executable, "-c", _KILLED, str(directory), str(taken)], stdout=subprocess.PIPE, cwd=ROOT
        )
        assert process.stdout is not None
        for _ in range(120):
            if not process.stdout.readline():
                break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 2
    assert set(taken.read_bytes().splitlines()) == {posted(seq=n)[0] for n in range(1, 501)}
