"""A circuit breaker: a daemon that does not answer is left alone for a while.

Each call to a dead slurmrestd may hold its thread for a whole time-out; the loop, the health watch
and every create would hang one after the other. After some failures in a row the circuit opens:
calls fail at once, saying since when and until when. When the time is over one call goes through as
a probe; the others still fail. An answer closes the circuit, whatever it says: a refusal proves
that somebody is there. A probe that fails opens it again, for twice as long.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slurmrest_adapter.domain.errors import SlurmError, Unavailable


class CircuitOpen(Unavailable):
    """Not asked: the last calls all failed, and the time for another one has not come."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When it opens and for how long.

    Attributes:
        failures: so many in a row open it; 0 switches it off.
        first_s, longest_s: how long it stays open at first and at most; doubled by each failed probe.
    """

    failures: int = 6
    first_s: float = 1.0
    longest_s: float = 15.0


USUAL = BreakerPolicy()
OFF = BreakerPolicy(failures=0)


class Breaker:
    """One circuit. Safe for use by many threads.

    Args:
        name: what is behind it, for messages.
        opened: told each time that it opens.
        clock: monotonic seconds.
        wall: POSIX seconds, for messages.
    """

    def __init__(
        self,
        name: str,
        policy: BreakerPolicy = USUAL,
        *,
        opened: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._policy = policy
        self._opened = opened
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._failures = 0
        self._since = 0.0  # wall clock, of the first failure in a row
        self._open_for = 0.0  # 0 while it is closed
        self._until = 0.0
        self._probing = False
        self._last = ""

    @property
    def is_open(self) -> bool:
        """True from its opening until an answer; also while a probe is under way."""
        return self._open_for > 0

    @contextlib.contextmanager
    def call(self, proves: bool = True) -> Iterator[None]:
        """Around one call: `Unavailable` is a failure, every other outcome of Slurm's an answer.

        Args:
            proves: an answer shows that the daemon behind slurmrestd is well too.

        Raises:
            CircuitOpen: at once; the call must not be made.
        """
        probe = self._admit()
        try:
            yield
        except Unavailable as error:
            self._failed(probe, str(error))
            raise
        except SlurmError:
            self._answered(probe, proves)
            raise
        except BaseException:
            self._answered(probe, proves=False)
            raise
        self._answered(probe, proves)

    def _admit(self) -> bool:
        """Whether this call is the probe."""
        with self._lock:
            if not self._open_for:
                return False
            if not self._probing and self._clock() >= self._until:
                self._probing = True
                return True
            left = max(0.0, self._until - self._clock())
            raise CircuitOpen(
                f"{self._name} has not answered since {_moment(self._since)} ({self._last}); "
                f"it is asked again {'now' if self._probing else f'at {_moment(self._wall() + left)}'}"
            )

    def _failed(self, probe: bool, words: str) -> None:
        with self._lock:
            self._failures += 1
            if self._failures == 1:
                self._since = self._wall()
            self._last = words
            if probe:
                self._probing = False
                self._open_for = min(2 * self._open_for, self._policy.longest_s)
            elif self._open_for or not 0 < self._policy.failures <= self._failures:
                return  # late news of what is known, or not yet enough
            else:
                self._open_for = self._policy.first_s
            self._until = self._clock() + self._open_for
        self._opened()

    def _answered(self, probe: bool, proves: bool) -> None:
        with self._lock:
            if probe:
                self._probing = False
            if proves:
                self._failures = 0
                self._open_for = 0.0


def _moment(wall: float) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(wall))
