"""The CRI's log format: ``<RFC 3339 time> <stdout|stderr> <F|P> <text>``, one line each.

P marks a piece of a line that goes on, F its end. A file that is being written may end in half a
record; that half is not a line yet and is left for the next look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """One record: when, which stream, the bytes, and whether its line ends here."""

    time: str
    stream: str
    data: bytes
    full: bool

    @property
    def content(self) -> bytes:
        """What the container wrote, its newline included where it wrote one."""
        return self.data + b"\n" if self.full else self.data


def parse(line: bytes) -> Piece | None:
    """One record without its newline; None for what is none (a file somebody has been at)."""
    parts = line.split(b" ", 3)
    if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr") or parts[2] not in (b"F", b"P"):
        return None
    text = parts[3] if len(parts) == 4 else b""
    return Piece(parts[0].decode("ascii", "replace"), parts[1].decode(), text, parts[2] == b"F")


def pieces(lines: Iterable[bytes]) -> Iterator[Piece]:
    """The records of whole lines, each without its newline."""
    for line in lines:
        piece = parse(line)
        if piece:
            yield piece
