"""Where the end of a log begins that has so many lines."""

from __future__ import annotations

from collections.abc import Callable

from slurmrest_adapter.logs.cri import parse
from slurmrest_adapter.logs.segments import Segment

BLOCK = 64 * 1024
# A record is 16 KiB of text and a header; a longer "line" is none, however it goes on.
RECORD = 32 * 1024
# A tail is not looked for behind more than so many bytes without one record.
_BARREN = 16 * 1024 * 1024


class Tail:
    """Looks for where the last `lines` lines begin, from the newest file to the oldest.

    A line is a run of P records that an F ends; P records after the last F are a line that has
    not ended yet and count as one. Read backwards in blocks; the search ends where there is too
    much that is no record.

    Attributes:
        done: no older file needs to be looked at.
    """

    def __init__(self, lines: int, gone: Callable[[], bool]) -> None:
        self.done = lines <= 0
        self._lines = lines
        self._gone = gone
        self._seen = 0
        self._first = True  # no record has been seen
        self._barren = 0  # bytes since the last one

    def look(self, segment: Segment) -> int | None:
        """Where the tail begins in this file, by what has been seen until now; None for not in it."""
        position = segment.size
        begin: int | None = None
        carry = b""
        # What stands after the last newline is half a record: not a line yet.
        skip = True
        while position > 0 and not self.done:
            if self._barren > _BARREN or self._gone():
                self.done = True
                return begin if self._seen else position
            size = min(BLOCK, position)
            position -= size
            self._barren += size
            block = segment.read(size, position) + carry
            records = block.split(b"\n")
            # The first piece may be half a record unless the file begins here.
            carry = records[0]
            offset = position + len(block)
            for index in range(len(records) - 1, 0 if position else -1, -1):
                record = records[index]
                offset -= len(record) + (index < len(records) - 1)
                passed = len(record) > RECORD or (skip and index == len(records) - 1)
                piece = None if passed else parse(record)
                if piece is None:
                    continue
                if piece.full or self._first:
                    if self._seen == self._lines:
                        self.done = True
                        return begin
                    self._seen += 1
                self._first = False
                self._barren = 0
                begin = offset
            skip = skip and len(records) == 1
            if len(carry) > RECORD:
                carry, skip = b"", True
        return begin
