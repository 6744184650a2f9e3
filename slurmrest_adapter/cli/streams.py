"""All containers' logs at once, as they are written."""

from __future__ import annotations

import sys
import threading

from slurmrest_adapter.logs.reader import ContainerLog
from slurmrest_adapter.sources.userfiles import UntrustedFile
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.tracking.driver.deps import Deps


class Streams:
    """One thread for each container, until `finish`.

    With several containers each line begins with its container's name; whole lines are written
    at once, so that two containers never share one.

    Args:
        to_stderr: where standard output is one JSON document.
    """

    def __init__(self, deps: Deps, record: PodRecord, to_stderr: bool) -> None:
        self._out = sys.stderr.buffer if to_stderr else sys.stdout.buffer
        self._lock = threading.Lock()
        self._over = threading.Event()
        names = [str(c["name"]) for c in record.skeleton["containers"]]
        width = max(len(name) for name in names)
        self._threads = []
        for name in names:
            log = ContainerLog(deps.shared_root, record.directory, name, record.spec.get("uid"))
            prefix = f"[{name}]{' ' * (width - len(name))} ".encode() if len(names) > 1 else b""
            thread = threading.Thread(target=self._copy, args=(log, prefix), name=f"log-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Read what is left and stop. Call it when nothing more will be written."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _copy(self, log: ContainerLog, prefix: bytes) -> None:
        line = b""
        try:
            for piece in log.follow(self._over.is_set):
                line += piece.content
                if piece.full:
                    self._write(prefix + line)
                    line = b""
        except UntrustedFile as error:
            self._write(f"slurmrest-adapter: {error}\n".encode())
        if line:
            self._write(prefix + line + b"\n")

    def _write(self, data: bytes) -> None:
        with self._lock:
            self._out.write(data)
            self._out.flush()
