"""Time that is made up: sleeping moves it on, and what was planned for then happens on the way."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

BEGIN = 1_700_000_000.0


class FakeClock:
    """Stands for `time.time` and, by `sleep`, for `time.sleep`."""

    def __init__(self, now: float = BEGIN) -> None:
        self.now = now
        self.slept = 0.0
        self._planned: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass."""
        assert seconds > 0, "a loop that sleeps 0 seconds would never end"
        self.slept += seconds
        until = self.now + seconds
        while self._planned and self._planned[0][0] <= until:
            self.now, _, happens = heapq.heappop(self._planned)
            happens()
        self.now = until

    def after(self, seconds: float, happens: Callable[[], object]) -> None:
        """Plan something for later."""
        heapq.heappush(self._planned, (self.now + seconds, next(self._order), happens))
