"""Opening files that a job's user owns.

The sidecar may be root, and everything below a pod's directory belongs to somebody else, who can
turn a log into a symbolic link to /etc/shadow, a FIFO that never answers, or a second name of
another user's file. So each step of the path is opened without following links, and the file must
be a regular one, of that user, with one name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from slurmrest_adapter.domain.errors import AdapterError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UntrustedFile(AdapterError):
    """A file is not what the runner would have written; somebody has been at it."""


def open_file(root: Path, parts: Sequence[str], owner: int | None) -> int | None:
    """Open ``root/part/part/…`` for reading.

    Args:
        root: a directory of the sidecar's own; links in it are the admin's business.
        parts: single names below it, the last one a file.
        owner: the uid the file must have; None skips that check.

    Returns:
        A file descriptor, or None when it does not exist (yet).

    Raises:
        UntrustedFile: a link, no regular file, several names, or another owner.
    """
    descriptor = _open(root, parts, _FILE)
    if descriptor is None:
        return None
    fault = _fault(os.fstat(descriptor), owner)
    if fault:
        os.close(descriptor)
        raise UntrustedFile(f"{'/'.join(parts)}: {fault}")
    return descriptor


def names_in(root: Path, parts: Sequence[str], limit: int) -> list[str]:
    """The names in the directory ``root/part/part/…``; none where there is no such directory.

    Raises:
        UntrustedFile: a link on the way, no directory, or more than `limit` names in it.
    """
    descriptor = _open(root, parts, _DIRECTORY)
    if descriptor is None:
        return []
    try:
        with os.scandir(descriptor) as entries:
            names = [entry.name for entry in islice(entries, limit + 1)]
    finally:
        os.close(descriptor)
    if len(names) > limit:
        raise UntrustedFile(f"{'/'.join(parts)}: holds more than {limit} names")
    return names


def _open(root: Path, parts: Sequence[str], last: int) -> int | None:
    """Open each part without following links, the last one with the flags `last`."""
    where = "/".join(parts)
    for part in parts:
        if part in ("", ".", "..") or "/" in part or "\0" in part:
            raise UntrustedFile(f"{where!r} is no path below the pod's directory")
    descriptor = -1
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for index, part in enumerate(parts):
            flags = last if index == len(parts) - 1 else _DIRECTORY
            inner = os.open(part, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
    except FileNotFoundError:
        _close(descriptor)
        return None
    except OSError as error:
        _close(descriptor)
        raise UntrustedFile(f"{where}: {error.strerror}") from error
    return descriptor


Mark = tuple[int, int, int]


def read_file(root: Path, parts: Sequence[str], owner: int | None, limit: int) -> bytes | None:
    """Read a small file whole; see `open_file`.

    Args:
        limit: bytes; a larger file is UntrustedFile, not cut.
    """
    return read_changed(root, parts, owner, limit, None)[0]


def read_changed(
    root: Path, parts: Sequence[str], owner: int | None, limit: int, mark: Mark | None
) -> tuple[bytes | None, Mark | None]:
    """Read a small file whole unless it is as it was.

    Args:
        limit: see `read_file`.
        mark: what the last read gave with the data, None at first.

    Returns:
        The data (None when there is no file, or it has not changed) and the mark for the next read.
    """
    descriptor = open_file(root, parts, owner)
    if descriptor is None:
        return None, None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        now = (found.st_ino, found.st_mtime_ns, found.st_size)
        if now == mark:
            return None, mark
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UntrustedFile(f"{'/'.join(parts)}: larger than {limit} bytes")
    return data, now


def _fault(found: os.stat_result, owner: int | None) -> str | None:
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if found.st_nlink > 1:
        return "has more than one name"
    if owner is not None and found.st_uid != owner:
        return f"belongs to uid {found.st_uid}, not to the job's user"
    return None


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
