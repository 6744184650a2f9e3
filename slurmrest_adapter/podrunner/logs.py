"""A container's log in the CRI's format: ``<RFC 3339 with nanoseconds> <stream> <P|F> <text>``.

The kubelet's own log reader and every log shipper understand it. A line longer than `PIECE` is cut
into pieces marked P (partial), the last one F (full). Text without a final newline stays P, so that
a reader can give back exactly the bytes that were written. Nothing is decoded: bytes are bytes.
"""

import os
import time
from typing import Dict

PIECE = 16 * 1024


class CriLog:
    """Appends to one log file; `stdout` and `stderr` are kept apart until their line is whole."""

    def __init__(self, path: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
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

    def _write(self, data: bytes) -> None:
        # A full disk must not end the container: what cannot be written is counted and dropped.
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._file, view) :]
            except OSError:
                self.lost += len(view)
                return


def clear(directory: str, restart: int) -> None:
    """Remove the logs of runs before the one before `restart`."""
    for name in os.listdir(directory):
        number = name.split(".")[0]
        if number.isdigit() and int(number) < restart - 1:
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
