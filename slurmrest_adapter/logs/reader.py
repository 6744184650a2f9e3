"""Reading and following one container's log.

The whole file is never held in memory: a tail is found from the end in blocks, and following
keeps one descriptor and reads what has come since. The file is its user's, who may fill it with
anything: what is too long to be a record is passed over and never kept.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slurmrest_adapter.logs.cri import Piece, parse, pieces
from slurmrest_adapter.sources.userfiles import open_file

_BLOCK = 64 * 1024
# A record is 16 KiB of text and a header; a longer "line" is none, however it goes on.
_RECORD = 32 * 1024
# A tail is not looked for behind more than so many bytes without one record.
_BARREN = 16 * 1024 * 1024


def _never() -> bool:
    return False


class ContainerLog:
    """The log of one run of one container.

    Args:
        root: shared_dir as this host sees it.
        directory: the pod's directory below it.
        container: the container's name.
        owner: uid of the job's user.
        restart: which run, from 0.
    """

    def __init__(
        self, root: Path, directory: str, container: str, owner: int | None, restart: int = 0
    ) -> None:
        self._root = root
        self._parts = (directory, "logs", container, f"{restart}.log")
        self._owner = owner

    def exists(self) -> bool:
        """Is there such a log?

        Raises:
            UntrustedFile: it is not the runner's.
        """
        descriptor = open_file(self._root, self._parts, self._owner)
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is not None

    def read(self, tail: int | None = None) -> Iterator[Piece]:
        """What has been logged until now, or its last `tail` lines; nothing when there is no log.

        Raises:
            UntrustedFile: the log is not the runner's.
        """
        return self.follow(lambda: True, tail)

    def follow(
        self, ended: Callable[[], bool], tail: int | None = None, interval: float = 0.1
    ) -> Iterator[Piece]:
        """What has been and will be logged; see `batches`."""
        for batch in self.batches(ended, tail, interval):
            yield from batch

    def batches(
        self,
        ended: Callable[[], bool],
        tail: int | None = None,
        interval: float = 0.1,
        gone: Callable[[], bool] = _never,
    ) -> Iterator[list[Piece]]:
        """What has been and will be logged, in the portions it is read in: some 64 KiB at most.

        A portion is given as soon as it is read, so nothing is held back while nothing is written.

        Args:
            ended: asked before each portion until it says True; then what is there at that moment
                is read and that is all.
            tail: begin with the last so many lines of what is there; None begins at the start.
            interval: seconds between two looks at a file that has not grown.
            gone: asked before each portion; True ends at once.

        Raises:
            UntrustedFile: the log is not the runner's.
        """
        descriptor: int | None = None
        lines = _Lines()
        position, over = 0, False
        end: int | None = None
        try:
            while not gone():
                over = over or ended()
                if descriptor is None:
                    descriptor = open_file(self._root, self._parts, self._owner)
                    if descriptor is not None and tail is not None:
                        position = _tail_offset(descriptor, tail, gone)
                block = b""
                if descriptor is not None:
                    if over and end is None:
                        end = os.fstat(descriptor).st_size
                    size = _BLOCK if end is None else max(0, min(_BLOCK, end - position))
                    block = os.pread(descriptor, size, position)
                    position += len(block)
                    if found := list(pieces(lines.feed(block))):
                        yield found
                    if lines.passing and block and not block.strip(b"\0"):
                        position = _after_hole(descriptor, position)
                if not block:
                    if over:
                        return
                    time.sleep(interval)
        finally:
            if descriptor is not None:
                os.close(descriptor)


class _Lines:
    """Cuts blocks into lines, and passes over lines that are too long to be records.

    Attributes:
        passing: in the middle of such a line.
    """

    def __init__(self) -> None:
        self.passing = False
        self._rest = b""

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that the block completes, each without its newline."""
        *lines, rest = (self._rest + block).split(b"\n")
        if self.passing and lines:
            del lines[0]
            self.passing = False
        self.passing = self.passing or len(rest) > _RECORD
        self._rest = b"" if self.passing else rest
        return [line for line in lines if len(line) <= _RECORD]


def _after_hole(descriptor: int, position: int) -> int:
    """Where a sparse file has data again; a hole costs nothing and may be terabytes long."""
    size = os.fstat(descriptor).st_size
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        return max(position, size) if error.errno == errno.ENXIO else position


def _tail_offset(descriptor: int, lines: int, gone: Callable[[], bool]) -> int:
    """Where the last `lines` lines begin.

    A line is a run of P records that an F ends; P records after the last F are a line that has
    not ended yet and count as one. Read backwards in blocks; the search ends where there is too
    much that is no record.
    """
    end = os.fstat(descriptor).st_size
    if lines <= 0:
        return end
    position, begin, carry, seen, first = end, end, b"", 0, True
    # What stands after the last newline is half a record: not a line yet.
    skip = True
    while position > 0:
        if begin - position > _BARREN or gone():
            return begin if seen else position
        size = min(_BLOCK, position)
        position -= size
        block = os.pread(descriptor, size, position) + carry
        records = block.split(b"\n")
        # The first piece may be half a record unless the file begins here.
        carry = records[0]
        offset = position + len(block)
        for index in range(len(records) - 1, 0 if position else -1, -1):
            record = records[index]
            offset -= len(record) + (index < len(records) - 1)
            passed = len(record) > _RECORD or (skip and index == len(records) - 1)
            piece = None if passed else parse(record)
            if piece is None:
                continue
            if piece.full or first:
                if seen == lines:
                    return begin
                seen += 1
            first = False
            begin = offset
        skip = skip and len(records) == 1
        if len(carry) > _RECORD:
            carry, skip = b"", True
    return begin if seen else 0
