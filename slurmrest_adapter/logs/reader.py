"""Reading and following one container's log.

The whole log is never held in memory: a tail is found from the end in blocks, and following
keeps one descriptor and reads what has come since, in each of the log's files after the other
(`segments`). They are their user's, who may fill them with anything: what is too long to be a
record is passed over and never kept.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slurmrest_adapter.logs.cri import Piece, pieces
from slurmrest_adapter.logs.segments import Segment, Segments
from slurmrest_adapter.logs.tail import BLOCK, RECORD, Tail

# Seconds between two looks for a newer file while nothing comes.
_LOOK = 0.5


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
        self._segments = Segments(root, (directory, "logs", container, f"{restart}.log"), owner)

    def exists(self) -> bool:
        """Is there such a log?

        Raises:
            UntrustedFile: it is not the runner's.
        """
        segment = self._segments.after(None)
        if segment is not None:
            segment.close()
        return segment is not None

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
        place = _Place(self._segments, gone)
        over = False
        budget: int | None = None
        try:
            if tail is not None:
                place.tail(tail)
            while not gone():
                over = over or ended()
                if over and budget is None:
                    budget = place.rest()
                before = place.passed
                block = place.read(BLOCK if budget is None else min(BLOCK, budget))
                if found := list(pieces(place.lines.feed(block))):
                    yield found
                if place.lines.passing and block and not block.strip(b"\0"):
                    place.leap()
                if budget is not None:
                    budget = max(0, budget - (place.passed - before))
                if block:
                    continue
                if budget == 0 or not place.turn(over):
                    if over:
                        return
                    time.sleep(interval)
        finally:
            place.close()


class _Place:
    """Where in a log's files is read.

    Attributes:
        passed: bytes that were read or passed over, in all files.
        lines: what cuts this file's blocks.
    """

    def __init__(self, segments: Segments, gone: Callable[[], bool]) -> None:
        self.passed = 0
        self.lines = _Lines()
        self._segments = segments
        self._gone = gone
        self._held: Segment | None = None
        self._position = 0
        self._next: Segment | None = None
        self._looked: float | None = None

    def tail(self, lines: int) -> None:
        """Go to where the last `lines` lines begin that there are now."""
        search = Tail(lines, self._gone)
        for segment in self._segments.backwards():
            offset = search.look(segment)
            if self._held is None or offset is not None:
                missing = segment.size if lines <= 0 else 0
                self._go(segment, missing if offset is None else offset)
            else:
                segment.close()
            if search.done:
                break

    def read(self, size: int) -> bytes:
        """The next bytes of this file, `size` at most; nothing at its end."""
        if self._held is None:
            return b""
        block = self._held.read(size, self._position)
        if block:
            self._looked = None
        self._position += len(block)
        self.passed += len(block)
        return block

    def leap(self) -> None:
        """Go to where a sparse file has data again; a hole costs nothing and may be terabytes long."""
        if self._held is not None:
            before, self._position = self._position, _after_hole(self._held.descriptor, self._position)
            self.passed += self._position - before

    def rest(self) -> int:
        """How many bytes there are to read, now."""
        here = max(0, self._held.size - self._position) if self._held else 0
        return here + self._segments.rest(self._held)

    def turn(self, now: bool) -> bool:
        """At the end of a file: go on to the next one; False where there is none (yet).

        A file is not written to any more when there is a next one, but may have been until then. So
        its end is read once more before it is left. Unless it must be known `now`, a look is only
        taken at the first end and then from time to time.
        """
        if self._next is not None:
            self._go(self._next, 0)
            self._next = None
            return True
        if not now and self._looked is not None and time.monotonic() - self._looked < _LOOK:
            return False
        self._looked = time.monotonic()
        self._next = self._segments.after(self._held)
        return self._next is not None

    def close(self) -> None:
        """Close what is open."""
        for segment in (self._held, self._next):
            if segment is not None:
                segment.close()

    def _go(self, segment: Segment, position: int) -> None:
        if self._held is not None:
            self._held.close()
        self._held, self._position = segment, position
        self._looked = None
        # Half a record at the end of a file is not continued in the next.
        self.lines = _Lines()


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
        self.passing = self.passing or len(rest) > RECORD
        self._rest = b"" if self.passing else rest
        return [line for line in lines if len(line) <= RECORD]


def _after_hole(descriptor: int, position: int) -> int:
    """Where a sparse file has data again; a hole costs nothing and may be terabytes long."""
    size = os.fstat(descriptor).st_size
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        return max(position, size) if error.errno == errno.ENXIO else position
