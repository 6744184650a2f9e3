"""Reading and following one container's log.

The whole file is never held in memory: a tail is found from the end in blocks, and following
keeps one descriptor and reads what has come since.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slurmrest_adapter.logs.cri import Piece, parse, pieces
from slurmrest_adapter.sources.userfiles import open_file

_BLOCK = 64 * 1024


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

    def read(self, tail: int | None = None) -> Iterator[Piece]:
        """What has been logged until now, or its last `tail` lines; nothing when there is no log.

        Raises:
            UntrustedFile: the log is not the runner's.
        """
        return self.follow(lambda: True, tail)

    def follow(
        self, ended: Callable[[], bool], tail: int | None = None, interval: float = 0.1
    ) -> Iterator[Piece]:
        """What has been and will be logged.

        Args:
            ended: asked before each look; once it says True the rest is read and that is all.
            tail: begin with the last so many lines of what is there; None begins at the start.
            interval: seconds between two looks at a file that has not grown.
        """
        descriptor: int | None = None
        rest = b""
        try:
            while True:
                last = ended()
                if descriptor is None:
                    descriptor = open_file(self._root, self._parts, self._owner)
                    if descriptor is not None and tail is not None:
                        os.lseek(descriptor, _tail_offset(descriptor, tail), os.SEEK_SET)
                grown = False
                while descriptor is not None and (block := os.read(descriptor, _BLOCK)):
                    grown = True
                    *lines, rest = (rest + block).split(b"\n")
                    yield from pieces(lines)
                if last:
                    return
                if not grown:
                    time.sleep(interval)
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _tail_offset(descriptor: int, lines: int) -> int:
    """Where the last `lines` lines begin.

    A line is a run of P records that an F ends; P records after the last F are a line that has
    not ended yet and count as one. Read backwards in blocks.
    """
    end = os.fstat(descriptor).st_size
    if lines <= 0:
        return end
    position, begin, carry, seen, first = end, end, b"", 0, True
    while position > 0:
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
            # What stands after the last newline is half a record: not a line yet.
            half = index == len(records) - 1 and position + size == end
            piece = None if half else parse(record)
            if piece is None:
                continue
            if piece.full or first:
                if seen == lines:
                    return begin
                seen += 1
            first = False
            begin = offset
    return begin if seen else 0
