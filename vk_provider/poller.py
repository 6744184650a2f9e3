"""One question about all pods instead of one for each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from vk_provider.cache import Pod, PodCache, is_deleting
from vk_provider.sidecar import SidecarClient, SidecarRefused, SidecarUnreachable
from vk_provider.status import is_finished
from vk_provider.tracked import Book, Tracked

log = structlog.get_logger(__name__)

CHUNK = 200
MOST_WAIT_S = 30.0


class Poller:
    """Asks the sidecar at intervals and wakes the workers of pods with news."""

    def __init__(
        self,
        sidecar: SidecarClient,
        cache: PodCache,
        book: Book,
        changed: Callable[[str], None],
        stop: threading.Event,
        interval_s: float,
    ) -> None:
        self._sidecar, self._cache, self._book = sidecar, cache, book
        self._changed, self._stop, self._interval_s = changed, stop, interval_s
        self._soon = threading.Event()

    def soon(self) -> None:
        """Ask before the interval is over."""
        self._soon.set()

    def run(self) -> None:
        """Until `stop` is set; a sidecar that does not answer changes nothing."""
        wait = self._interval_s
        while not self._stop.is_set():
            self._soon.wait(wait)
            self._soon.clear()
            if self._stop.is_set():
                return
            try:
                self.poll()
                wait = self._interval_s
            except (SidecarUnreachable, SidecarRefused) as error:
                log.warning("status not known", error=str(error))
                wait = min(MOST_WAIT_S, wait * 2)
                self._stop.wait(self._interval_s)  # `soon` must not turn this into a busy loop

    def poll(self) -> None:
        """Ask once about every pod that may have news."""
        wanted = [
            (uid, pod, tracked) for uid, tracked in self._book.all() if (pod := self._wants(uid, tracked))
        ]
        for start in range(0, len(wanted), CHUNK):
            chunk = wanted[start : start + CHUNK]
            asked_at = time.monotonic()
            answers = self._sidecar.status([pod for _, pod, _ in chunk])
            for uid, pod, tracked in chunk:
                entry = answers.get(uid)
                news = entry != tracked.entry or is_deleting(pod)
                tracked.entry, tracked.asked_at = entry, asked_at
                if news:
                    self._changed(uid)

    def _wants(self, uid: str, tracked: Tracked) -> Pod | None:
        pod = self._cache.get(uid)
        if pod is None or tracked.removed:
            return None
        if is_deleting(pod):
            return pod if tracked.delete_sent_at else None
        return pod if tracked.submitted and not is_finished(pod) else None
