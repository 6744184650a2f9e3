"""Keys to work on: each at most once in the queue, never two workers on one key.

The same idea as client-go's work queue. A key added while it is worked on is handed out again
afterwards, so no news is lost and nothing about one pod ever runs side by side.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable

FIRST_S, MOST_S = 1.0, 60.0


class WorkQueue:
    """A keyed queue with delays and a back-off for each key; safe for threads."""

    def __init__(
        self,
        first_s: float = FIRST_S,
        most_s: float = MOST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._changed = threading.Condition()
        self._ready: deque[str] = deque()
        self._waiting: set[str] = set()  # in _ready, or dirty while worked on
        self._working: set[str] = set()
        self._later: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._failures: dict[str, int] = {}
        self._first_s, self._most_s, self._clock = first_s, most_s, clock
        self._closed = False

    def add(self, key: str) -> None:
        """Work on the key as soon as possible."""
        with self._changed:
            self._add(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Work on the key in so many seconds, or earlier if it is added meanwhile."""
        with self._changed:
            heapq.heappush(self._later, (self._clock() + seconds, next(self._order), key))
            self._changed.notify()

    def retry(self, key: str) -> float:
        """Work on the key after its back-off, which doubles each time; answers the seconds."""
        with self._changed:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
        seconds = min(self._most_s, self._first_s * 2.0 ** min(failures, 16)) * random.uniform(0.8, 1.2)  # noqa: S311
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: str) -> None:
        """It went well: the next back-off starts small again."""
        with self._changed:
            self._failures.pop(key, None)

    def get(self) -> str | None:
        """The next key, waiting for one; None when the queue is closed. Call `done` afterwards."""
        with self._changed:
            while not self._closed:
                wait = self._move_due()
                if self._ready:
                    key = self._ready.popleft()
                    self._waiting.discard(key)
                    self._working.add(key)
                    return key
                self._changed.wait(wait)
            return None

    def done(self, key: str) -> None:
        """The work on the key has ended, well or not."""
        with self._changed:
            self._working.discard(key)
            if key in self._waiting:
                self._ready.append(key)
                self._changed.notify()

    def close(self) -> None:
        """Let every `get` end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _add(self, key: str) -> None:
        if key in self._waiting or self._closed:
            return
        self._waiting.add(key)
        if key not in self._working:
            self._ready.append(key)
            self._changed.notify()

    def _move_due(self) -> float | None:
        """Seconds until the next delayed key, None when there is none."""
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            self._add(heapq.heappop(self._later)[2])
        return self._later[0][0] - now if self._later else None
