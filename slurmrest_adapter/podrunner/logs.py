"""A container's log in the CRI's format: ``<RFC 3339 with nanoseconds> <stream> <P|F> <text>``.

The kubelet's own log reader and every log shipper understand it. A line longer than `PIECE` is cut
into pieces marked P (partial), the last one F (full). Text without a final newline stays P, so that
a reader can give back exactly the bytes that were written. Nothing is decoded: bytes are bytes.

``N.log`` is the newest of run N. A full one becomes ``N.log.K``, and K grows: who reads one finds the
next, whatever has been put away or removed meanwhile.
"""

import os
import time
from typing import Dict, List

from .light import suppress

PIECE = 16 * 1024
SIZE, FILES = 10 * 1024 * 1024, 5  # as a kubelet keeps them


class CriLog:
    """Appends to one log; `stdout` and `stderr` are kept apart until their line is whole.

    A file is full before it would pass `size` bytes (but takes what comes at once, some MiB at most);
    `files` are kept of one run.
    """

    def __init__(self, path: str, size: int = SIZE, files: int = FILES) -> None:
        self._path, self._size, self._files = path, size, files
        self._file = self._open()
        self._written = os.fstat(self._file).st_size
        self._torn = False
        self._pending: Dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.lost = 0

    def feed(self, stream: str, data: bytes) -> None:
        """Take bytes that a container wrote to `stream`; whole lines are written at once."""
        stamp = _stamp(time.time())
        whole, newline, rest = (self._pending[stream] + data).rpartition(b"\n")
        out = []
        if newline and _short(whole):
            # All at once: line by line it would cost more than all else that a byte goes through.
            out.append(_entry(stamp, stream, b"F", whole.replace(b"\n", b"\n" + _head(stamp, stream, b"F"))))
        elif newline:
            for line in whole.split(b"\n"):
                while len(line) > PIECE:
                    out.append(_entry(stamp, stream, b"P", line[:PIECE]))
                    line = line[PIECE:]
                out.append(_entry(stamp, stream, b"F", line))
        while len(rest) > PIECE:
            out.append(_entry(stamp, stream, b"P", rest[:PIECE]))
            rest = rest[PIECE:]
        self._pending[stream] = rest
        if out:
            self._write(b"".join(out))

    def flush(self) -> None:
        """Write what has no newline yet, as partial lines."""
        stamp = _stamp(time.time())
        for stream in sorted(self._pending):
            if self._pending[stream]:
                self._write(_entry(stamp, stream, b"P", self._pending[stream]))
                self._pending[stream] = b""

    def pending(self) -> bool:
        """Whether there is text that `flush` would write."""
        return any(self._pending.values())

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)

    def _write(self, data: bytes) -> None:
        if self._written and self._written + len(data) > self._size:
            self._written = 0  # if it cannot be done it is tried again after as much
            with suppress(OSError):
                self._rotate()
        # A full disk must not end the container: what cannot be written is counted and dropped, and
        # half a record that it leaves is not continued by the next.
        whole = b"\n" + data if self._torn else data
        view = memoryview(whole)
        while view:
            try:
                done = os.write(self._file, view)
            except OSError:
                self.lost += min(len(view), len(data))
                self._torn = self._torn or len(view) < len(whole)
                return
            self._written += done
            view = view[done:]
        self._torn = False

    def _rotate(self) -> None:
        """Put the file away and begin another; if that fails it stays what it was. Raises OSError."""
        directory, name = os.path.split(self._path)
        kept = sorted(_numbers(directory, name))
        aside = "{}.{}".format(self._path, kept[-1] + 1 if kept else 1)
        # Before, so that there are never more, whatever fails.
        for number in kept[: max(0, len(kept) + 2 - self._files)]:
            os.unlink("{}.{}".format(self._path, number))
        with suppress(FileNotFoundError):  # somebody has removed it, and what we write there
            os.rename(self._path, aside)
        try:
            file = self._open()
        except OSError:
            os.rename(aside, self._path)
            raise
        os.close(self._file)
        self._file, self._torn = file, False


def _numbers(directory: str, name: str) -> List[int]:
    """The numbers of what was put away."""
    ends = [entry[len(name) + 1 :] for entry in os.listdir(directory) if entry.startswith(name + ".")]
    # Only as they are written here: a user can make any name, and one that is not ours would never go.
    return [int(end) for end in ends if end.isdecimal() and len(end) < 9 and end == str(int(end)) != "0"]


def clear(directory: str, restart: int) -> None:
    """Remove the logs of runs before the one before `restart`."""
    for name in os.listdir(directory):
        number = name.split(".")[0]
        if number.isdecimal() and int(number) < restart - 1:
            os.unlink(os.path.join(directory, name))


def _short(lines: bytes) -> bool:
    """Whether each of these lines is one piece."""
    start = 0
    while len(lines) - start > PIECE:
        start = lines.rfind(b"\n", start, start + PIECE + 1) + 1
        if not start:
            return False
    return True


def _head(stamp: bytes, stream: str, tag: bytes) -> bytes:
    return b" ".join((stamp, stream.encode("ascii"), tag, b""))


def _entry(stamp: bytes, stream: str, tag: bytes, text: bytes) -> bytes:
    return _head(stamp, stream, tag) + text + b"\n"


def _stamp(now: float) -> bytes:
    seconds = int(now)
    nanoseconds = min(int((now - seconds) * 1000000000), 999999999)
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return "{}.{:09d}Z".format(whole, nanoseconds).encode("ascii")
