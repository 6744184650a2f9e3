"""The driver loop: one bulk question for all pods, again and again, in one thread.

Requests are answered from what the loop keeps, never by asking Slurm inside the request: the cost
of following is one question an interval, however many pods there are and however often somebody
wants to know.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping

import structlog

from slurmrest_adapter.domain.errors import SlurmError
from slurmrest_adapter.domain.jobs import JobState
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.tracking.driver.delete import Ender, NotOurs
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.follow import Follower, Seen

log = structlog.get_logger(__name__)

# Looks kept in memory; older ones of ended pods are made anew from the store.
REMEMBERED = 5000


class Loop:
    """Follows and ends every pod of the store.

    Args:
        deps: the driver's surroundings.
        interval: seconds between two questions.
        one_asker: a service user asks for everybody, so that one question is enough.
    """

    def __init__(self, deps: Deps, interval: float = 1.0, one_asker: bool = True) -> None:
        self._deps = deps
        self._interval = interval
        self._one_asker = one_asker
        self._followers: dict[str, Follower] = {}
        self._enders: dict[str, Ender] = {}
        self._seen: dict[str, Seen] = {}
        self._given_up: set[str] = set()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    def start(self) -> None:
        """Begin; pods that the store has from before are followed again."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present round."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """False when the thread has died, which should not happen and must be seen."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Look now: something has changed."""
        self._wake.set()

    def seen(self, uid: str) -> Seen | None:
        """The last look at a pod, from memory; from the store for one that ended long ago.

        None when the pod was never created here.
        """
        found = self._seen.get(uid)
        if found is None and self._deps.store.get(uid) is not None:
            found = self._seen[uid] = Follower(self._deps, uid).remembered()
        return found

    def round(self) -> None:
        """Ask once for all, let each pod take its answer, do what is due for those to be ended."""
        records = self._deps.store.pods()
        questions: dict[str, dict[str, int]] = defaultdict(dict)
        for record in records:
            follower = self._followers.get(record.uid)
            if follower is None:
                follower = self._followers[record.uid] = Follower(self._deps, record.uid)
            job_id = follower.question()
            if job_id is None:
                self._seen[record.uid] = follower.take(None)
            else:
                questions["" if self._one_asker else record.user][record.uid] = job_id
        users = {record.uid: record.user for record in records}
        for asked in questions.values():
            answer = self._ask(asked.values(), users[next(iter(asked))])
            for uid in asked:
                self._seen[uid] = self._followers[uid].take(answer)
        for record in records:
            self._end(record)
        self._forget({record.uid for record in records})

    def _ask(self, job_ids: Iterable[int], user: str) -> Mapping[int, JobState] | SlurmError:
        try:
            return self._deps.gateway.states(list(job_ids), user)
        except SlurmError as error:
            log.warning("slurm could not be asked", error=str(error))
            return error

    def _end(self, record: PodRecord) -> None:
        seen = self._seen[record.uid]
        if seen.record.deleting is None or record.uid in self._given_up:
            return
        try:
            ender = self._enders.get(record.uid)
            if ender is None:
                ender = self._enders[record.uid] = Ender(self._deps, record.uid)
            ender.step(seen)
        except NotOurs as error:
            self._given_up.add(record.uid)
            self._deps.store.update(record.uid, "foreign", str(error))
            log.error("left a job alone", pod_uid=record.uid, error=str(error))
        except SlurmError as error:
            log.warning("a pod could not be ended yet", pod_uid=record.uid, error=str(error))

    def _forget(self, open_uids: set[str]) -> None:
        """Pods that have ended need no follower; their last look stays in memory for a while."""
        for uid in set(self._followers) - open_uids:
            self._seen[uid] = self._followers.pop(uid).remembered()
            self._enders.pop(uid, None)
        for uid in list(self._seen)[: max(0, len(self._seen) - REMEMBERED)]:
            if uid not in open_uids:
                del self._seen[uid]

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.round()
            except Exception:  # one bad round must not end all following
                log.exception("a round of the driver failed")
            self._wake.wait(self._interval)
            self._wake.clear()
