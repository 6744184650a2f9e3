"""Which pods are to be looked at before the next poll, and when: events say that there is news.

The trick is in three numbers. Events of one moment are gathered for a short while, so that they
cost one bulk question together; two such questions keep a distance, so that no flood of events
becomes a flood of questions; and a look that came too early is repeated a few times, less and less
often: a node says that it is released before slurmctld calls the job ended. After that the poll,
which never stops, is soon enough.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

GATHER_SECONDS = 0.05
DISTANCE_SECONDS = 0.25
AGAIN_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass
class _Hint:
    due: float
    ended: bool
    tries: int = 0


class Hints:
    """Safe for use by many threads. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hints: dict[str, _Hint] = {}
        self._last = float("-inf")

    def add(self, uid: str, ended: bool, now: float) -> None:
        """There is news of a pod.

        Args:
            ended: the news is its job's end; it is looked for until it is there.
        """
        with self._lock:
            hint = self._hints.get(uid)
            if hint is None:
                self._hints[uid] = _Hint(now + GATHER_SECONDS, ended)
            elif ended and not hint.ended:
                self._hints[uid] = _Hint(min(hint.due, now + GATHER_SECONDS), True)
            else:
                hint.due, hint.tries = min(hint.due, now + GATHER_SECONDS), 0

    def due(self, now: float) -> dict[str, bool]:
        """Pods to be looked at now, each with whether its end is looked for; empty while the last
        look is too near. What is due counts as looked at."""
        with self._lock:
            if now < self._last + DISTANCE_SECONDS:
                return {}
            found = {uid: hint.ended for uid, hint in self._hints.items() if hint.due <= now}
            if found:
                self._last = now
            for uid in found:
                hint = self._hints[uid]
                if hint.tries >= len(AGAIN_SECONDS):
                    del self._hints[uid]
                else:
                    hint.due = now + AGAIN_SECONDS[hint.tries]
                    hint.tries += 1
            return found

    def settled(self, uid: str, ended: bool) -> None:
        """What was looked for has been seen; news of an end that came meanwhile stays."""
        with self._lock:
            hint = self._hints.get(uid)
            if hint is not None and (ended or not hint.ended):
                del self._hints[uid]

    def next(self) -> float | None:
        """When the next look is due; None when nothing is waited for."""
        with self._lock:
            if not self._hints:
                return None
            return max(min(hint.due for hint in self._hints.values()), self._last + DISTANCE_SECONDS)
