"""Asking again: which failures, how often, how long.

Only what does no harm when it is done twice comes here: questions and cancels. A submit never
does; whoever lost its answer looks for the job first (`tracking.driver.submit`).

Only `Unavailable` is asked again: no connection, a time-out, 502, 503, 504. Everything else is an
answer. A slow answer is one too: under rate limiting slurmrestd itself sleeps and tries again, so
nothing here has a time-out of its own. The waits are exponential with full jitter, so that many
callers that failed together do not come back together. Tries are few, because the poll loop asks
anew each second anyway, and because slurmrestd has tried for ten seconds itself before it says
that slurmctld is down.
"""

from __future__ import annotations

import email.utils
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import tenacity

from slurmrest_adapter.domain.errors import Unavailable
from slurmrest_adapter.slurm.breaker import CircuitOpen

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long.

    Attributes:
        tries: calls at most, the first among them; 1 switches asking again off.
        seconds: no further call begins later than this after the first one began.
        first_wait, longest_wait: bounds of the jitter before the second call, and of any, in seconds.
    """

    tries: int = 3
    seconds: float = 8.0
    first_wait: float = 0.2
    longest_wait: float = 2.0


USUAL = RetryPolicy()
NEVER = RetryPolicy(tries=1)


class Counters:
    """Numbers by name, counted by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}

    def add(self, name: str) -> None:
        """One more."""
        with self._lock:
            self._numbers[name] = self._numbers.get(name, 0) + 1

    def read(self) -> Mapping[str, int]:
        """All numbers now; a name that was never counted is missing."""
        with self._lock:
            return dict(self._numbers)


class Retrier:
    """Calls again what failed with `Unavailable`. Safe for use by many threads.

    Args:
        policy: see `RetryPolicy`.
        counters: ``retries`` counts further calls, ``gave_up`` questions that failed at the last.
        clock: monotonic seconds; with `sleep` replaced where time must be made up.
    """

    def __init__(
        self,
        policy: RetryPolicy = USUAL,
        counters: Counters | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._policy = policy
        self._counters = counters or Counters()
        self._clock = clock
        self._sleep = sleep
        self._jitter = tenacity.wait_random_exponential(multiplier=policy.first_wait, max=policy.longest_wait)

    def __call__(self, question: Callable[[], T]) -> T:
        """What `question` returns, or raises at its last try.

        Raises:
            Unavailable: also at the last try; or the daemon asked for a longer pause than is left.
        """
        if self._policy.tries <= 1:
            return question()
        begun = self._clock()

        def enough(state: tenacity.RetryCallState) -> bool:
            late = self._clock() - begun + state.upcoming_sleep > self._policy.seconds
            if late or state.attempt_number >= self._policy.tries:
                self._counters.add("gave_up")
                return True
            return False

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_worth_it),
            wait=self._wait,
            stop=enough,
            before_sleep=lambda _: self._counters.add("retries"),
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(question)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, Unavailable) else None
        # Jitter on top: everybody was told the same time.
        return self._jitter(state) + (asked or 0.0)


def _worth_it(error: BaseException) -> bool:
    # An open circuit was opened so that nobody waits on it.
    return isinstance(error, Unavailable) and not isinstance(error, CircuitOpen)


def retry_after(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Seconds that an answer asks to wait for (RFC 9110, 10.2.3); None when it does not say.

    Args:
        headers: of the answer; names in any case.
        now: POSIX seconds, for the form that is a date.
    """
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None
