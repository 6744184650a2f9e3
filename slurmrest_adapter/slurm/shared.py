"""One answer for all who ask the same at the same time.

The list of all jobs is the one dear question: seconds and megabytes where a cluster is full. After
an outage many pods look for their jobs at once, and each would ask for that list. Here they wait
for each other: who comes while a question is on its way shares the next one, never the present
one, so that an answer always begins after all who get it have asked.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from slurmrest_adapter.domain.errors import Unavailable

T = TypeVar("T")


@dataclass
class _Flight(Generic[T]):
    done: threading.Event = field(default_factory=threading.Event)
    answer: list[T] = field(default_factory=list)
    error: Exception | None = None


class Shared(Generic[T]):
    """Callers of one key share answers. Safe for use by many threads; answers must not be changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, _Flight[T]] = {}
        self._turns: dict[Hashable, threading.Lock] = defaultdict(threading.Lock)

    def __call__(self, key: Hashable, ask: Callable[[], T]) -> T:
        """The answer of `ask`, or of another caller's that begins later than now.

        Raises:
            Exception: what the shared `ask` raised.
        """
        with self._lock:
            flight = self._waiting.get(key)
            leads = flight is None
            if flight is None:
                flight = self._waiting[key] = _Flight()
            turn = self._turns[key]
        if leads:
            with turn:
                with self._lock:
                    del self._waiting[key]  # who comes from here on is of the next one
                flight.error = Unavailable("the question was cut short")
                try:
                    flight.answer.append(ask())
                    flight.error = None
                except Exception as error:
                    flight.error = error
                    raise
                finally:
                    flight.done.set()
        flight.done.wait()
        if flight.error is not None:
            raise flight.error
        return flight.answer[0]
