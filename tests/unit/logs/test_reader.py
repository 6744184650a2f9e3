"""Tail and follow at their edges."""

from __future__ import annotations

import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.logs import reader
from slurmrest_adapter.logs import tail as tails
from slurmrest_adapter.logs.reader import ContainerLog
from slurmrest_adapter.sources.userfiles import UntrustedFile

DIRECTORY = "0" * 32
TIME = "2026-01-02T03:04:05.000000006Z"


def write(root: Path, data: bytes) -> ContainerLog:
    path = root / DIRECTORY / "logs" / "main"
    path.mkdir(parents=True, exist_ok=True)
    (path / "0.log").write_bytes(data)
    return ContainerLog(root, DIRECTORY, "main", os.getuid())


def record(text: str, tag: str = "F", stream: str = "stdout") -> bytes:
    return f"{TIME} {stream} {tag} {text}\n".encode()


def content(log: ContainerLog, tail: int | None = None) -> bytes:
    return b"".join(piece.content for piece in log.read(tail))


def test_reads_what_the_container_wrote(tmp_path: Path) -> None:
    log = write(tmp_path, record("one") + record("two ", "P") + record("halves") + record("", "F", "stderr"))
    assert content(log) == b"one\ntwo halves\n\n"
    assert [piece.stream for piece in log.read()] == ["stdout", "stdout", "stdout", "stderr"]


def test_no_log_is_no_output(tmp_path: Path) -> None:
    assert content(ContainerLog(tmp_path, DIRECTORY, "main", os.getuid())) == b""


@pytest.mark.parametrize(
    ("tail", "expected"),
    [(0, b""), (1, b"c1c2\n"), (2, b"b\nc1c2\n"), (3, b"a\nb\nc1c2\n"), (99, b"a\nb\nc1c2\n")],
)
def test_tail_counts_lines_not_records(tmp_path: Path, tail: int, expected: bytes) -> None:
    log = write(tmp_path, record("a") + record("b") + record("c1", "P") + record("c2"))
    assert content(log, tail) == expected


def test_tail_with_a_line_that_has_not_ended(tmp_path: Path) -> None:
    log = write(tmp_path, record("a") + record("prompt> ", "P"))
    assert content(log, 1) == b"prompt> "
    assert content(log, 2) == b"a\nprompt> "


def test_half_a_record_is_not_a_line_yet(tmp_path: Path) -> None:
    log = write(tmp_path, record("a") + record("b") + record("half")[:-3])
    assert content(log, 1) == b"b\n"
    assert content(log) == b"a\nb\n"


@given(
    lines=st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=9), min_size=1)
    ),
    tail=st.integers(0, 12),
    block=st.integers(1, 70),
)
def test_tail_is_the_end_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[str]], tail: int, block: int
) -> None:
    root = tmp_path_factory.mktemp("log")
    data = b"".join(
        record(piece, "F" if index == len(line) - 1 else "P")
        for line in lines
        for index, piece in enumerate(line)
    )
    log = write(root, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tails, "BLOCK", block)
        patch.setattr(reader, "BLOCK", block)
        wanted = ["".join(line) + "\n" for line in lines][len(lines) - tail if tail < len(lines) else 0 :]
        assert content(log, tail) == "".join(wanted).encode()


def test_follow_sees_what_comes_and_ends(tmp_path: Path) -> None:
    log = write(tmp_path, record("first"))
    path = tmp_path / DIRECTORY / "logs" / "main" / "0.log"
    ended, first_seen = threading.Event(), threading.Event()

    def container() -> None:
        first_seen.wait(10)
        with path.open("ab") as file:
            data = record("second") + record("third")
            file.write(data[:50])
            file.flush()
            file.write(data[50:])
        ended.set()

    thread = threading.Thread(target=container)
    thread.start()
    seen = []
    for piece in log.follow(ended.is_set, interval=0.01):
        seen.append(piece.data)
        first_seen.set()
    thread.join()
    assert seen == [b"first", b"second", b"third"]


def test_files_of_users_are_not_trusted(tmp_path: Path) -> None:
    log = write(tmp_path, record("mine"))
    path = tmp_path / DIRECTORY / "logs" / "main" / "0.log"
    os.link(path, tmp_path / "other-name")
    with pytest.raises(UntrustedFile, match="more than one name"):
        content(log)
    path.unlink()
    path.symlink_to(tmp_path / "other-name")
    with pytest.raises(UntrustedFile):
        content(log)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UntrustedFile, match="no regular file"):
        content(log)
    path.unlink()
    path.write_bytes(record("mine"))
    with pytest.raises(UntrustedFile, match="belongs to uid"):
        content(ContainerLog(tmp_path, DIRECTORY, "main", os.getuid() + 1))
    with pytest.raises(UntrustedFile, match="no path below"):
        content(ContainerLog(tmp_path, DIRECTORY, "../main", os.getuid()))


class TestAnythingInTheFile:
    """The file is its user's; whatever stands in it costs little and hides no later record."""

    @pytest.fixture(autouse=True)
    def memory(self) -> Iterator[None]:
        tracemalloc.start()
        yield
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2 * 1024 * 1024

    @pytest.mark.parametrize("tail", [None, 1, 5])
    def test_a_sparse_file(self, tmp_path: Path, tail: int | None) -> None:
        log = write(tmp_path, b"")
        os.truncate(tmp_path / DIRECTORY / "logs" / "main" / "0.log", 1 << 40)
        assert content(log, tail) == b""

    def test_records_after_a_hole(self, tmp_path: Path) -> None:
        log = write(tmp_path, record("before"))
        path = tmp_path / DIRECTORY / "logs" / "main" / "0.log"
        os.truncate(path, 1 << 40)
        with path.open("ab") as file:
            file.write(b"\n" + record("after") + record("and") + record("on"))
        assert content(log) == b"before\nafter\nand\non\n"
        assert content(log, 1) == b"on\n"
        assert content(log, 3) == b"after\nand\non\n"
        assert content(log, 9) == b"after\nand\non\n"  # nobody looks through a terabyte

    @pytest.mark.parametrize("block", [1024, 64 * 1024])
    @pytest.mark.parametrize("length", [40_000, 3 * 64 * 1024, 8_000_000])
    def test_a_line_that_is_too_long(
        self, tmp_path: Path, length: int, block: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tails, "BLOCK", block)
        monkeypatch.setattr(reader, "BLOCK", block)
        path = tmp_path / DIRECTORY / "logs" / "main" / "0.log"
        log = write(tmp_path, record("before"))
        with path.open("ab") as file:
            file.write(record("")[:-1])
            for _ in range(length // 1000):
                file.write(b"x" * 1000)
            file.write(b"\n" + record("after") + record("on"))
        assert content(log) == b"before\nafter\non\n"
        for tail, expected in enumerate((b"", b"on\n", b"after\non\n", b"before\nafter\non\n")):
            assert content(log, tail) == expected

    def test_a_record_of_full_length_is_whole(self, tmp_path: Path) -> None:
        log = write(tmp_path, record("x" * 16384, "P") + record("y" * 16384))
        assert content(log) == content(log, 1) == b"x" * 16384 + b"y" * 16384 + b"\n"

    def test_one_that_left_is_not_read_for(self, tmp_path: Path) -> None:
        log = write(tmp_path, b"x" * 1_000_000 + b"\n" + record("end"))
        asked = iter([False] * 3 + [True] * 99)
        assert list(log.batches(lambda: True, gone=lambda: next(asked))) == []

    def test_a_file_that_grows_for_ever_ends_where_it_ended(self, tmp_path: Path) -> None:
        log = write(tmp_path, record("x" * 9000) * 20)
        path = tmp_path / DIRECTORY / "logs" / "main" / "0.log"
        count = 0
        for batch in log.batches(lambda: True):
            count += len(batch)
            with path.open("ab") as file:
                file.write(record("x" * 9000) * 20)
        assert count == 20

    def test_the_end_is_noticed_while_there_is_more_to_read(self, tmp_path: Path) -> None:
        log = write(tmp_path, record("x" * 9000) * 20)
        path = tmp_path / DIRECTORY / "logs" / "main" / "0.log"
        looks = iter(range(5))
        # Somebody writes faster than it is read: only the question before each portion ends it.
        for _ in log.batches(lambda: next(looks) == 3):
            with path.open("ab") as file:
                file.write(record("x" * 9000) * 20)
