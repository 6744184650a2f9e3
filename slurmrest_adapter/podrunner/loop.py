"""One thread, one place to wait: pipes, signals, ended children and timers."""

import heapq
import os
import selectors
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

# What is made of a larger one would be given back to the kernel, and paid for page by page, each time.
_CHUNK = 32 * 1024
_READS, _DROP_READS = 8, 128


class Loop:
    """Calls back for what happens; `on_child(pid, status, seconds)` for every child that ends.

    `seconds` is the processor time of the child and of all that was waited for below it.
    """

    def __init__(self, on_term: Callable[[], None], on_child: Callable[[int, int, float], None]) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._on_term = on_term
        self._on_child = on_child
        self._done = False
        self._readers: Dict[int, Callable[[bytes], None]] = {}
        self._wake, write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(write, False)
        # Handlers must be there for the wake-up pipe to hear a signal.
        signal.set_wakeup_fd(write)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, _heard)
        self._selector.register(self._wake, selectors.EVENT_READ, self._signals)

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call once, `seconds` from now."""
        self._count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, call))

    def read(self, descriptor: int, call: Callable[[bytes], None]) -> None:
        """Call with what can be read, at last with b"" when the other end is closed (and close ours)."""
        os.set_blocking(descriptor, False)
        self._readers[descriptor] = call
        self._selector.register(descriptor, selectors.EVENT_READ, self._readable)

    def drop(self, descriptor: int) -> None:
        """Read what is there now (up to a limit, if somebody goes on writing), then close."""
        for _ in range(_DROP_READS):
            if descriptor not in self._readers or not self._readable(descriptor):
                break
        if descriptor in self._readers:
            self._close(descriptor)

    def stop(self) -> None:
        """Let `run` come back."""
        self._done = True

    def run(self) -> None:
        """Wait and call back until `stop`."""
        self._reap()
        while not self._done:
            timeout: Optional[float] = None
            if self._timers:
                timeout = max(0.0, self._timers[0][0] - time.monotonic())
            for key, _ in self._selector.select(timeout):
                for _ in range(_READS):  # to wait again costs as much as to read
                    if key.fd != self._wake and key.fd not in self._readers:
                        break
                    if not key.data(key.fd):
                        break
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now and not self._done:
                heapq.heappop(self._timers)[2]()

    def _readable(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        call = self._readers[descriptor]
        if not data:
            self._close(descriptor)
        call(data)
        return bool(data)

    def _close(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)
        del self._readers[descriptor]
        os.close(descriptor)

    def _signals(self, descriptor: int) -> None:
        numbers = os.read(descriptor, _CHUNK)
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._on_term()
        if signal.SIGCHLD in numbers:
            self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._on_child(pid, status, used.ru_utime + used.ru_stime)


def _heard(number: int, frame: Any) -> None:
    """The wake-up pipe tells the loop."""
