"""A log of several files: what the runner's writer does, and what the reader makes of it meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmrest_adapter.logs import reader, segments, tail
from slurmrest_adapter.logs.cri import parse
from slurmrest_adapter.logs.reader import ContainerLog
from slurmrest_adapter.podrunner import logs
from slurmrest_adapter.podrunner.logs import CriLog
from slurmrest_adapter.sources import userfiles
from slurmrest_adapter.sources.userfiles import UntrustedFile

DIRECTORY = "0" * 32
SIZE = 600  # bytes: a dozen records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / DIRECTORY / "logs" / "main"
    folder.mkdir(parents=True)
    return folder / "0.log"


def opened(path: Path) -> ContainerLog:
    return ContainerLog(path.parents[3], DIRECTORY, "main", os.getuid())


def kept(path: Path) -> list[Path]:
    """The log's files, the oldest first."""
    aside = [one for one in path.parent.iterdir() if one != path]
    return [*sorted(aside, key=lambda one: int(one.suffix[1:])), *([path] if path.exists() else [])]


def content(log: ContainerLog, tail: int | None = None) -> bytes:
    return b"".join(piece.content for piece in log.read(tail))


def numbers(first: int, last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(first, last))


def fill(log: CriLog, first: int, last: int) -> None:
    for number in range(first, last):
        log.feed("stdout", b"%d\n" % number)


def kept_names(path: Path) -> set[str]:
    return {one.name for one in path.parent.iterdir()}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class TestTheWriter:
    def test_full_files_are_put_away_and_the_oldest_removed(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 3)
        fill(log, 0, 100)
        log.close()
        files = kept(path)
        assert [one.name for one in files] == ["0.log.6", "0.log.7", "0.log"]
        assert all(one.stat().st_size <= SIZE and one.stat().st_mode & 0o777 == 0o600 for one in files)
        assert len({one.stat().st_size for one in files[:2]}) == 1
        assert content(opened(path)) == numbers(
            100 - sum(one.read_bytes().count(b"\n") for one in files), 100
        )

    def test_it_goes_on_where_an_earlier_job_ended(self, path: Path) -> None:
        for first in range(0, 100, 10):
            log = CriLog(str(path), SIZE, 100)
            fill(log, first, first + 10)
            log.close()
        assert len(kept(path)) > 5
        assert content(opened(path)) == numbers(0, 100)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["stdout", "stderr", "flush", "again"]),
                st.binary(max_size=200) | st.sampled_from([b"\n" * 50, b"x" * 3000, b"a\nb\nc\n"]),
            ),
            max_size=40,
        ),
        st.integers(100, 1000),
        st.integers(2, 4),
        st.data(),
    )
    @settings(max_examples=150, deadline=None)
    def test_what_is_kept_is_the_end_of_what_was_written(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        steps: list[tuple[str, bytes]],
        size: int,
        files: int,
        data: st.DataObject,
    ) -> None:
        """By any writes, new starts, and renames and opens that fail."""
        path = tmp_path_factory.mktemp("log") / "0.log"
        wrote: list[bytes] = []
        failures: list[object] = []
        record = CriLog._write

        def keep(log: CriLog, entries: bytes) -> None:
            wrote.append(entries)
            record(log, entries)

        def sometimes(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: object, **named: object) -> Any:
                if failing and data.draw(unlikely):
                    failures.append(call)
                    raise PermissionError
                return call(*arguments, **named)

            return called

        unlikely = data.draw(st.sampled_from([st.just(False), st.booleans()]))
        failing = False
        log = CriLog(str(path), size, files)
        with mock.patch.object(CriLog, "_write", keep), mock.patch.object(logs, "PIECE", 300):
            with (
                mock.patch.object(os, "rename", sometimes(os.rename)),
                mock.patch.object(os, "open", sometimes(os.open)),
            ):
                for kind, text in steps:
                    failing = True
                    if kind == "flush":
                        log.flush()
                    elif kind == "again":
                        failing = False
                        log.close()
                        log = CriLog(str(path), size, files)
                    else:
                        log.feed(kind, text)
                failing = False
            log.close()
        found = b"".join(one.read_bytes() for one in kept(path))
        assert b"".join(wrote).endswith(found)
        assert len(kept(path)) <= files
        assert failures or found == b"".join(wrote) or len(kept(path)) == files
        assert log.lost == 0
        assert all(parse(line) for one in kept(path) for line in one.read_bytes().split(b"\n")[:-1])

    def test_a_log_that_cannot_be_put_away_goes_on(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 2)
        with mock.patch.object(os, "rename", side_effect=PermissionError):
            fill(log, 0, 60)
        assert content(opened(path)) == numbers(0, 60)
        fill(log, 60, 120)
        log.close()
        assert len(kept(path)) == 2
        assert content(opened(path)).endswith(numbers(110, 120))

    def test_a_log_that_was_removed_begins_again(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 2)
        fill(log, 0, 5)
        path.unlink()
        fill(log, 5, 50)
        log.close()
        assert content(opened(path)).endswith(numbers(45, 50))

    def test_names_that_somebody_planted(self, path: Path) -> None:
        """None is taken for a number, and none keeps the log from being rotated."""
        for name in ("²", "٣", "0", "01", "1.gz", "999999999", "9999999999", ""):
            (path.parent / f"0.log.{name}").touch()
        (path.parent / "².log").touch()
        planted = len(kept_names(path))
        log = CriLog(str(path), SIZE, 3)
        fill(log, 0, 100)
        log.close()
        assert len(kept_names(path)) == planted + 3
        assert path.stat().st_size <= SIZE
        logs.clear(str(path.parent), 2)
        assert kept_names(path) == {"².log"}

    def test_half_a_record_on_a_full_disk_is_not_continued(self, path: Path) -> None:
        log = CriLog(str(path))
        log.feed("stdout", b"one\n")
        write, room = os.write, [30]

        def full(file: int, data: memoryview) -> int:
            if not room[0]:
                raise OSError(28, "No space left on device")
            done = write(file, data[: room[0]])
            room[0] -= done
            return done

        with mock.patch.object(os, "write", full):
            log.feed("stdout", b"two\n")
            log.feed("stdout", b"three\n")
        log.feed("stdout", b"four\n")
        log.feed("stdout", b"five\n")
        log.close()
        assert log.lost > 0
        assert content(opened(path)) == b"one\nfour\nfive\n"

    def test_logs_of_older_runs_go_with_all_their_files(self, path: Path) -> None:
        for name in ("0.log", "0.log.1", "0.log.12", "1.log", "1.log.3", "2.log", "x.log"):
            (path.parent / name).touch()
        logs.clear(str(path.parent), 2)
        assert sorted(one.name for one in path.parent.iterdir()) == ["1.log", "1.log.3", "2.log", "x.log"]


class TestTheReader:
    @given(
        count=st.integers(0, 90),
        keep=st.integers(2, 9),
        wanted=st.integers(0, 100),
        block=st.integers(20, 900),
        partial=st.booleans(),
    )
    @settings(max_examples=150, deadline=None)
    def test_a_tail_over_all_files(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        count: int,
        keep: int,
        wanted: int,
        block: int,
        partial: bool,
    ) -> None:
        path = tmp_path_factory.mktemp("log") / DIRECTORY / "logs" / "main" / "0.log"
        path.parent.mkdir(parents=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logs, "PIECE", 4)
            patch.setattr(tail, "BLOCK", block)
            patch.setattr(reader, "BLOCK", block)
            log = CriLog(str(path), SIZE, keep)
            for number in range(count):
                log.feed("stdout", b"%d" % number * (number % 7 + 1) + b"\n")
            if partial:
                log.feed("stdout", b"no end")
            log.close()
            whole = content(opened(path))
            lines = whole.splitlines(keepends=True)
            assert content(opened(path), wanted) == b"".join(lines[max(0, len(lines) - wanted) :])

    def test_following_while_files_are_put_away(self, path: Path) -> None:
        """Nothing is lost and nothing comes twice, however reading and writing take turns."""
        log = CriLog(str(path), SIZE, 100)
        done = threading.Event()

        def write() -> None:
            for first in range(0, 3000, 10):
                fill(log, first, first + 10)
            log.close()
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        with mock.patch.object(reader, "_LOOK", 0.0):
            found = b"".join(p.content for p in opened(path).follow(done.is_set, interval=0.001))
        thread.join()
        first = int(found.split(b"\n", 1)[0])
        assert found == numbers(first, 3000)

    @given(st.lists(st.integers(0, 30), max_size=30), st.integers(0, 40) | st.none())
    @settings(max_examples=100, deadline=None)
    def test_each_turn_gives_what_has_come(
        self, tmp_path_factory: pytest.TempPathFactory, turns: list[int], wanted: int | None
    ) -> None:
        path = tmp_path_factory.mktemp("log") / DIRECTORY / "logs" / "main" / "0.log"
        path.parent.mkdir(parents=True)
        log = CriLog(str(path), SIZE, 100)
        fill(log, 0, 20)
        written = 20
        left = iter(turns)

        def over() -> bool:
            nonlocal written
            more = next(left, None)
            if more is None:
                return True
            fill(log, written, written + more)
            written += more
            return False

        with mock.patch.object(reader, "_LOOK", 0.0), mock.patch.object(reader, "BLOCK", 150):
            found = b"".join(p.content for p in opened(path).follow(over, wanted, interval=0))
        log.close()
        assert found == numbers(0 if wanted is None else max(0, 20 - wanted), written)

    def test_what_was_removed_is_passed_over(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 3)
        fill(log, 0, 5)
        seen: list[bytes] = []
        turns = iter([False, True])

        def over() -> bool:
            if next(turns, None):
                fill(log, 5, 100)
                return False
            return len(seen) > 5

        for piece in opened(path).follow(over, interval=0):
            seen.append(piece.data)
        log.close()
        # It held the first file, which it could read to its end; others went by meanwhile.
        assert seen[:5] == [b"0", b"1", b"2", b"3", b"4"]
        assert seen[-30:] == [b"%d" % number for number in range(70, 100)]
        assert [int(one) for one in seen] == sorted({int(one) for one in seen})

    @pytest.mark.parametrize("wanted", [5, 15, 25, 70, 200])
    def test_files_are_put_away_while_they_are_listed(self, path: Path, wanted: int) -> None:
        log = CriLog(str(path), SIZE, 100)
        fill(log, 0, 30)
        names, turns = userfiles.names_in, iter([30, 0])
        written = 30

        def listed(*arguments: Any) -> list[str]:
            nonlocal written
            more = next(turns, 0)
            fill(log, written, written + more)
            written += more
            return names(*arguments)

        with mock.patch.object(segments, "names_in", listed):
            found = content(opened(path), wanted)
        log.close()
        first = int(found.split(b"\n", 1)[0])
        assert found == numbers(first, written)
        assert first <= max(0, written - wanted)
        assert first >= max(0, 30 - wanted)

    @pytest.mark.parametrize("wanted", [None, 5])
    def test_a_file_that_its_node_has_removed(self, path: Path, wanted: int | None) -> None:
        """NFS tells that by ESTALE; what comes later is read."""
        log = CriLog(str(path), SIZE, 100)
        fill(log, 0, 100)
        log.close()
        stale, read = (path.parent / "0.log.2").stat().st_ino, os.pread

        def pread(descriptor: int, size: int, offset: int) -> bytes:
            if os.fstat(descriptor).st_ino == stale:
                raise OSError(errno.ESTALE, "Stale file handle")
            return read(descriptor, size, offset)

        with mock.patch.object(os, "pread", pread):
            found = content(opened(path), wanted)
        first, lost = ((path.parent / f"0.log.{number}").read_bytes().count(b"\n") for number in (1, 2))
        assert found == (numbers(95, 100) if wanted else numbers(0, first) + numbers(first + lost, 100))

    def test_between_putting_away_and_beginning_anew(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 5)
        fill(log, 0, 30)
        log.close()
        path.rename(path.parent / "0.log.9")
        assert opened(path).exists()
        assert content(opened(path)) == numbers(0, 30)
        assert content(opened(path), 25) == numbers(5, 30)

    def test_half_a_record_at_the_end_of_a_file(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 5)
        fill(log, 0, 3)
        log.close()
        whole = path.read_bytes()
        (path.parent / "0.log.1").write_bytes(whole[:-4])
        assert content(opened(path)) == b"0\n1\n0\n1\n2\n"
        assert content(opened(path), 4) == b"1\n0\n1\n2\n"


class TestAnythingInTheDirectory:
    """The directory is its user's."""

    def test_only_names_of_the_runner_count(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 5)
        fill(log, 0, 3)
        log.close()
        names = (
            "0.log.0",
            "0.log.01",
            "0.log.-1",
            "0.log.1234567890",
            "0.log.1.gz",
            "10.log.1",
            "0.log.a",
            "0xlog.1",
        )
        for name in (*names, "0.log.٣"):
            (path.parent / name).write_bytes(path.read_bytes())
        assert content(opened(path)) == numbers(0, 3)
        assert content(opened(path), 10) == numbers(0, 3)
        log = CriLog(str(path), SIZE, 5)
        fill(log, 3, 30)
        log.close()
        assert content(opened(path)) == numbers(0, 30)

    @pytest.mark.parametrize("wanted", [None, 50])
    @pytest.mark.parametrize("what", ["link", "pipe", "name", "directory"])
    def test_a_file_that_is_none(self, path: Path, what: str, wanted: int | None) -> None:
        log = CriLog(str(path), SIZE, 5)
        fill(log, 0, 3)
        log.close()
        false = path.parent / "0.log.1"
        if what == "link":
            false.symlink_to("/etc/passwd")
        elif what == "pipe":
            os.mkfifo(false)
        elif what == "name":
            (path.parent / "other").touch()
            os.link(path.parent / "other", false)
        else:
            false.mkdir()
        with pytest.raises(UntrustedFile, match=r"0\.log\.1"):
            content(opened(path), wanted)

    def test_a_directory_that_is_a_link(self, path: Path, tmp_path: Path) -> None:
        path.parent.rename(tmp_path / "elsewhere")
        path.parent.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(UntrustedFile):
            content(opened(path))

    def test_thousands_of_names_cost_no_more_than_some(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 5)
        fill(log, 0, 3)
        log.close()
        for number in range(1, 400):
            (path.parent / f"0.log.{number}").touch()
        opens = mock.Mock(wraps=userfiles.open_file)
        with mock.patch.object(segments, "open_file", opens):
            assert content(opened(path), 10) == numbers(0, 3)
            assert opens.call_count < 300
        before = descriptors()
        assert content(opened(path)) == numbers(0, 3)
        assert descriptors() == before
        with mock.patch.object(segments, "_ENTRIES", 5), pytest.raises(UntrustedFile, match="more than 5"):
            content(opened(path))
        with mock.patch.object(segments, "_ENTRIES", 5), pytest.raises(UntrustedFile, match="more than 5"):
            content(opened(path), 3)
        assert descriptors() == before

    def test_a_log_that_is_put_away_for_ever_ends_where_it_ended(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 4)
        fill(log, 0, 50)
        count = 0
        for batch in opened(path).batches(lambda: True):
            count += len(batch)
            fill(log, 50 + count, 60 + count)
        log.close()
        assert 30 < count < 60

    def test_no_file_stays_open_while_others_are_put_away(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 100)
        fill(log, 0, 1)
        counts = []
        turns = iter(range(60))

        def over() -> bool:
            counts.append(descriptors())
            if len(counts) % 5 == 1:  # in between it reads to the end
                fill(log, 0, 12)
            return next(turns, None) is None

        with mock.patch.object(reader, "_LOOK", 0.0):
            assert sum(1 for _ in opened(path).follow(over, interval=0)) == 1 + 12 * 13
        log.close()
        # The file that is read and the next one.
        assert max(counts) <= counts[0] + 2

    def test_no_file_stays_open(self, path: Path) -> None:
        log = CriLog(str(path), SIZE, 9)
        fill(log, 0, 90)
        before = descriptors()
        for wanted in (None, 0, 1, 40, 1000):
            content(opened(path), wanted)
            stream = opened(path).follow(lambda: False, wanted)
            if wanted != 0:
                next(stream)
            stream.close()  # type: ignore[attr-defined]
        assert descriptors() == before
        log.close()
