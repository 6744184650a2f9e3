"""All containers' logs at once, as they are written."""

from __future__ import annotations

import sys
import threading
import time

from slurmrest_adapter.logs.reader import ContainerLog
from slurmrest_adapter.sources.userfiles import UntrustedFile
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.tracking.driver.deps import Deps

# Bytes of one line that are kept until its end; a longer line is written in parts.
_LONGEST = 64 * 1024
_LOOK_AHEAD = 4  # runs
_LOOK_SECONDS = 0.5  # between two looks for a later run, each of which opens files on the shared file system


class Streams:
    """One thread for each container, until `finish`; it goes from one run of the container to the next.

    With several containers each line begins with its container's name; whole lines are written
    at once, so that two containers never share one; a line beyond 64 KiB is cut.

    Args:
        to_stderr: where standard output is one JSON document.
    """

    def __init__(self, deps: Deps, record: PodRecord, to_stderr: bool) -> None:
        self._deps = deps
        self._record = record
        self._out = sys.stderr.buffer if to_stderr else sys.stdout.buffer
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._broken = threading.Event()
        names = [str(c["name"]) for c in record.skeleton["containers"]]
        width = max(len(name) for name in names)
        self._threads = []
        for name in names:
            prefix = f"[{name}]{' ' * (width - len(name))} ".encode() if len(names) > 1 else b""
            thread = threading.Thread(target=self._copy, args=(name, prefix), name=f"log-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    @property
    def broken(self) -> bool:
        """Nobody reads what is written any more."""
        return self._broken.is_set()

    def finish(self) -> None:
        """Read what is left and stop. Call it when nothing more will be written."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _copy(self, name: str, prefix: bytes) -> None:
        """Copy until `finish`, or until nobody reads it; the pod is followed all the same."""
        run: int | None = 0
        try:
            try:
                while run is not None and not self.broken:
                    self._lines(name, run, prefix)
                    run = self._after(name, run)
            except UntrustedFile as error:
                self._write(f"slurmrest-adapter: {error}\n".encode())
        except BrokenPipeError:
            self._broken.set()
        except OSError as error:
            self._broken.set()
            sys.stderr.write(f"slurmrest-adapter: logs are no longer printed: {error}\n")

    def _lines(self, name: str, run: int, prefix: bytes) -> None:
        """Copy the log of one run until the next one has a log of its own."""
        line = bytearray()

        due = 0.0

        def over() -> bool:
            nonlocal due
            if self._over.is_set():
                return True
            if time.monotonic() < due:
                return False
            due = time.monotonic() + _LOOK_SECONDS
            return self._after(name, run) is not None

        for batch in self._log(name, run).batches(over, gone=self._broken.is_set):
            for piece in batch:
                line += piece.content
                if piece.full:
                    self._write(prefix + line)
                    line.clear()
                elif len(line) > _LONGEST:
                    # Cut where others write too, or another container would stand in its middle.
                    self._write(prefix + line + (b"\n" if prefix else b""))
                    line.clear()
        if line:
            self._write(prefix + line + b"\n")

    def _after(self, name: str, run: int) -> int | None:
        """The next run that has a log; one whose program could not be executed has none."""
        later = range(run + 1, run + 1 + _LOOK_AHEAD)
        return next((number for number in later if self._log(name, number).exists()), None)

    def _log(self, name: str, run: int) -> ContainerLog:
        record = self._record
        return ContainerLog(self._deps.shared_root, record.directory, name, record.spec.get("uid"), run)

    def _write(self, data: bytes) -> None:
        with self._lock:
            self._out.write(data)
            self._out.flush()
