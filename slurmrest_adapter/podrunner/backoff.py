"""When a container is started again: the kubelet's rules, without a clock and without a process."""

from typing import Optional

# In units of the base, which is 10 s with the kubelet: its longest wait, and the running time after
# which it forgets earlier failures (300 s, 600 s).
_LONGEST, _FORGOTTEN = 30, 60


class Backoff:
    """The waits before a container's next starts; `base` in seconds.

    The first start after a failure comes at once (or after `first` seconds), then each wait is
    twice the last.
    """

    def __init__(self, base: float, first: float = 0.0) -> None:
        self._base = base
        self._first = self._next = first

    def after(self, ran: float) -> float:
        """Seconds to wait after a run of `ran` seconds."""
        if self.long(ran):
            self._next = self._first
        wait = self._next
        self._next = min(max(self._base, 2 * wait), _LONGEST * self._base)
        return wait

    def long(self, ran: float) -> bool:
        """Whether a run was long enough to forget the failures before it."""
        return ran > _FORGOTTEN * self._base


class Idle:
    """Counts the time in which a pod does nothing but wait for its next start.

    `limit` in seconds, None for no limit. Times are a monotonic clock's.
    """

    def __init__(self, limit: Optional[float]) -> None:
        self._limit = limit
        self._gone = 0.0
        self._since: Optional[float] = None

    def update(self, waits: bool, now: float) -> Optional[float]:
        """Say whether the pod only waits now; answers the seconds left to the limit while it does."""
        if self._since is not None:
            self._gone += now - self._since
        self._since = now if waits else None
        if self._limit is None or not waits:
            return None
        return max(0.0, self._limit - self._gone)

    def worked(self) -> None:
        """A container did its work, or ran for long: what was waited before does not count."""
        self._gone = 0.0


def again(policy: str, code: int) -> bool:
    """Whether a container that ended with `code` is started again."""
    return policy == "Always" or (policy == "OnFailure" and code != 0)
