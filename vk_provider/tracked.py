"""What the provider remembers of a pod beside what the API server has. All of it can be lost."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vk_provider.cache import Pod


@dataclass(slots=True)
class Tracked:
    """One pod, by UID. Only the pod's own worker and the poller write to it.

    Attributes:
        pod: as last seen; needed when the API server has it no more.
        submitted: the sidecar has taken it.
        looked_up: the sidecar was asked whether it has it.
        entry: the sidecar's last answer, None when it does not know the pod.
        asked_at: monotonic time at which that question was sent, 0 when there was none.
        delete_sent_at: monotonic time at which /delete was last answered, 0 before.
        removed: our final DELETE went through.
        patch: the last patch of the status, and when (monotonic).
    """

    pod: Pod
    submitted: bool = False
    looked_up: bool = False
    entry: Mapping[str, Any] | None = None
    asked_at: float = 0.0
    delete_sent_at: float = 0.0
    removed: bool = False
    patch: tuple[str, float] = ("", 0.0)


class Book:
    """All of them; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Tracked] = {}

    def of(self, uid: str, pod: Pod) -> Tracked:
        """The pod's memory, begun if there is none."""
        with self._lock:
            tracked = self._known.setdefault(uid, Tracked(pod))
            tracked.pod = pod
            return tracked

    def get(self, uid: str) -> Tracked | None:
        """The pod's memory."""
        with self._lock:
            return self._known.get(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone and nothing is left to do."""
        with self._lock:
            self._known.pop(uid, None)

    def all(self) -> list[tuple[str, Tracked]]:
        """All of them by UID."""
        with self._lock:
            return list(self._known.items())
