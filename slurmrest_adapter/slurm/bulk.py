"""Asking for the states of many jobs: all of slurmctld's in one answer, or ours in several questions.

Up to 400 ids one question with a filter costs least, and its request line stays below the 8 kB at
which proxies stop. For more, it depends on how many jobs others have: with 5,200 jobs in slurmctld
the answer for all took half as long as a filtered one, with a hundred thousand it would not. So
both ways are timed, the cheaper one is taken, and the other is tried again now and then, since
clusters fill and empty.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from enum import Enum

FILTER_AT_MOST = 400
# A way that was the dearer one is tried again after so many questions.
TRY_AGAIN = 128
# How much the newest time counts; one slow answer shall not turn everything round.
_NEWEST = 0.3


class Way(Enum):
    """How to ask for more ids than one filter holds."""

    ALL = "all"
    CHUNKS = "chunks"


class Chooser:
    """Knows which way costs less. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Seconds of one answer for all; seconds of a filtered question for each id.
        self._cost: dict[Way, float] = {}
        self._asked = 0

    def choose(self, count: int) -> Way:
        """The way for so many ids; first for all, then in chunks, then as they cost."""
        with self._lock:
            self._asked += 1
            untried = next((way for way in Way if way not in self._cost), None)
            if untried is not None:
                return untried
            cheaper = Way.ALL if self._cost[Way.ALL] <= self._cost[Way.CHUNKS] * count else Way.CHUNKS
            if self._asked % TRY_AGAIN:
                return cheaper
            return Way.CHUNKS if cheaper is Way.ALL else Way.ALL

    def took(self, way: Way, count: int, seconds: float) -> None:
        """Keep what a question cost.

        Args:
            count: ids that were asked for.
            seconds: of all its requests together.
        """
        cost = seconds if way is Way.ALL else seconds / count
        with self._lock:
            known = self._cost.get(way)
            self._cost[way] = cost if known is None else known + _NEWEST * (cost - known)


def chunks(job_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """As few parts as the filter allows, of nearly the same size."""
    parts = -(-len(job_ids) // FILTER_AT_MOST)
    size = -(-len(job_ids) // parts) if parts else 1
    for start in range(0, len(job_ids), size):
        yield job_ids[start : start + size]
