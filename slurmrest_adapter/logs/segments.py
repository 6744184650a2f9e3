"""The files of one run's log, in their order: ``N.log.1``, ``N.log.2`` … and ``N.log``, the newest.

The runner puts a full ``N.log`` away under the next number and begins another; the oldest is removed.
This may happen at any moment between two of our own calls, so a file is known by its inode: the one
that was opened as ``N.log`` is found again among those put away, and the one after it has the next
number. The directory is its user's, who may make names in it by the thousand.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from slurmrest_adapter.sources.userfiles import UntrustedFile, names_in, open_file

_ENTRIES = 10_000
# The runner keeps a hundred at most.
_SEGMENTS = 128
_TRIES = 5


@dataclass(slots=True)
class Segment:
    """An open file of a log.

    Attributes:
        number: what it was put away as; for one that was opened as the newest, the number that its
            successor's is larger than.
    """

    descriptor: int
    number: int

    @property
    def size(self) -> int:
        """Its bytes at this moment; 0 of a file that its node has removed."""
        found = _stat(self.descriptor)
        return 0 if found is None else found.st_size

    def read(self, size: int, position: int) -> bytes:
        """`size` bytes at most from `position` on; none of a file that its node has removed."""
        try:
            return os.pread(self.descriptor, size, position)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            return b""

    def close(self) -> None:
        """Close it."""
        os.close(self.descriptor)


class Segments:
    """The files of one run's log.

    Args:
        root: shared_dir as this host sees it.
        parts: the path of the newest file below it.
        owner: uid that the files must have; None skips that check.

    Every method raises UntrustedFile for what the runner would not have written.
    The caller closes what it is given.
    """

    def __init__(self, root: Path, parts: tuple[str, ...], owner: int | None) -> None:
        self._root = root
        self._parts = parts
        self._owner = owner
        self._name = re.compile(re.escape(parts[-1]) + r"\.([1-9][0-9]{0,8})")

    def after(self, held: Segment | None) -> Segment | None:
        """The file after `held`, or the oldest; None when there is none yet.

        With it, nothing is written to `held` any more, and what is not read of it yet can be.
        """
        # In this order: what is put away between the two calls is in the list then.
        newest = self._newest()
        try:
            if newest and held and _same(newest, held):
                return None
            numbers = self._numbers()
            floor = held.number if held else 0
            for number in (number for number in numbers if number > floor):
                segment = self._put_away(number)
                if segment is None:
                    continue
                if held is None or not _same(segment, held):
                    return segment
                segment.close()
                held.number = number
            if newest:
                newest.number = max([floor, *numbers])
                found, newest = newest, None
                return found
            return None
        finally:
            if newest:
                newest.close()

    def backwards(self) -> Iterator[Segment]:
        """From the newest to the oldest, each opened when it is asked for."""
        newest, numbers = self._settled()
        # Its descriptor may be closed, and given to another file, when the next one is asked for.
        known = newest and _identity(newest.descriptor)
        if newest:
            newest.number = max([0, *numbers])
            yield newest
        for number in reversed(numbers):
            segment = self._put_away(number)
            if segment is None:
                continue
            if _identity(segment.descriptor) == known:  # put away a moment ago
                segment.close()
                continue
            yield segment

    def rest(self, held: Segment | None) -> int:
        """How many bytes come after `held`, by the sizes that the files have now."""
        total = 0
        for index, segment in enumerate(self.backwards()):
            with closing(segment):
                reached = held and (_same(segment, held) or (index > 0 and segment.number <= held.number))
                if reached:
                    break
                total += segment.size
        return total

    def _settled(self) -> tuple[Segment | None, list[int]]:
        """The newest file, and the numbers of what was put away before it began.

        Where files are put away so fast that no moment is caught, some later ones may be among them.
        """
        newest: Segment | None = None
        numbers: list[int] = []
        try:
            for _ in range(_TRIES):
                if newest:
                    newest.close()
                newest = self._newest()
                numbers = self._numbers()
                if self._is_newest(newest):
                    break
        except UntrustedFile:
            if newest:
                newest.close()
            raise
        return newest, numbers

    def _is_newest(self, held: Segment | None) -> bool:
        now = self._newest()
        if now is None:
            return held is None
        with closing(now):
            return held is not None and _same(held, now)

    def _newest(self) -> Segment | None:
        descriptor = open_file(self._root, self._parts, self._owner)
        return None if descriptor is None else Segment(descriptor, 0)

    def _put_away(self, number: int) -> Segment | None:
        parts = (*self._parts[:-1], f"{self._parts[-1]}.{number}")
        descriptor = open_file(self._root, parts, self._owner)
        return None if descriptor is None else Segment(descriptor, number)

    def _numbers(self) -> list[int]:
        names = names_in(self._root, self._parts[:-1], _ENTRIES)
        found = (self._name.fullmatch(name) for name in names)
        return sorted(int(match[1]) for match in found if match)[-_SEGMENTS:]


def _stat(descriptor: int) -> os.stat_result | None:
    """None when a node has removed the file: over NFS it is lost then to who has it open, too."""
    try:
        return os.fstat(descriptor)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return None


def _same(one: Segment, other: Segment) -> bool:
    return _identity(one.descriptor) == _identity(other.descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    """What tells files apart; nothing has the one that a file has got which a node has removed."""
    found = _stat(descriptor)
    return (-1, descriptor) if found is None else (found.st_dev, found.st_ino)
