"""The driver loop: one bulk question for all pods, again and again, in one thread.

Requests are answered from what the loop keeps, never by asking Slurm inside the request: the cost
of following is one question an interval, however many pods there are and however often somebody
wants to know. Between two rounds the pods that events are about are looked at, see `hints`.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import structlog

from slurmrest_adapter.domain.errors import SlurmError
from slurmrest_adapter.domain.jobs import JobState
from slurmrest_adapter.store.base import PodRecord, Stage
from slurmrest_adapter.tracking.driver.delete import Ender, NotOurs, drop
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.events import LOOKS
from slurmrest_adapter.tracking.driver.follow import Follower, Seen
from slurmrest_adapter.tracking.driver.hints import Hints

log = structlog.get_logger(__name__)

# A container's start and end are in its runner's file, and cost Slurm nothing.
RUNNER_SECONDS = 1.0
# Looks kept in memory; older ones of ended pods are made anew from the store.
REMEMBERED = 5000


class Loop:
    """Follows and ends every pod of the store.

    Args:
        deps: the driver's surroundings.
        interval: seconds between two questions; runners' files are read more often where it is long.
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
        self._faults: dict[str, str] = {}
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._all_now = True
        self._hints = Hints()
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
        self._all_now = True
        self._wake.set()

    def hint(self, uid: str, ended: bool) -> None:
        """An event brings news of a pod; it is looked at within moments, together with others.

        Args:
            ended: its job is said to be over, which is asked for until it is so.
        """
        self._hints.add(uid, ended, time.monotonic())
        self._wake.set()

    def seen(self, uid: str) -> Seen | None:
        """The last look at a pod, from memory; from the store for one that ended long ago.

        None when the pod was never created here.
        """
        found = self._seen.get(uid)
        if found is None and self._deps.store.get(uid) is not None:
            found = Follower(self._deps, uid).remembered()
            if found.closed:  # what goes on is the next round's to remember
                self._seen[uid] = found
        return found

    def round(self) -> None:
        """Ask once for all, let each pod take its answer, do what is due for those to be ended.

        A pod whose own data trips us keeps its last look and stops nobody else's.
        """
        records = {record.uid: record for record in self._deps.store.pods()}
        self._look_at(records)
        self._forget(set(records))

    def glance(self, hinted: Mapping[str, bool]) -> None:
        """Look at a few pods, as a round does at all.

        Args:
            hinted: UID → its job is said to be over; what is seen to be so is not asked for again.
        """
        found = {uid: self._deps.store.get(uid) for uid in hinted}
        open_ones = {
            uid: record
            for uid, record in found.items()
            if record is not None and record.stage in (Stage.SUBMITTING, Stage.SUBMITTED)
        }
        for record in open_ones.values():
            self._follower(record).recall_events()
        self._look_at(open_ones)
        for uid, ended in hinted.items():
            seen = self._seen.get(uid)
            if uid not in open_ones or (seen is not None and _settled(seen, ended)):
                self._hints.settled(uid, ended)
        if self._deps.events is not None:
            self._deps.events.add((), (), {LOOKS: 1})

    def read_runners(self) -> None:
        """Take what the runners have written, and ask nobody."""
        for uid, follower in self._followers.items():
            with self._alone(uid):
                seen = follower.reread()
                if seen is not None:
                    self._seen[uid] = seen

    def _look_at(self, records: dict[str, PodRecord]) -> None:
        questions: dict[str, dict[str, int]] = defaultdict(dict)
        for uid, record in records.items():
            with self._alone(uid):
                # First of all: an end that is due must not wait for the looks of a whole round.
                record = records[uid] = self._end(record)
                follower = self._follower(record)
                job_id = follower.question()
                if job_id is None:
                    self._seen[uid] = follower.take(None)
                else:
                    questions["" if self._one_asker else record.user][uid] = job_id
        for asked in questions.values():
            answer = self._ask(asked.values(), records[next(iter(asked))].user)
            for uid in asked:
                with self._alone(uid):
                    self._seen[uid] = self._followers[uid].take(answer)

    def _follower(self, record: PodRecord) -> Follower:
        follower = self._followers.get(record.uid)
        if follower is None:
            follower = self._followers[record.uid] = Follower(self._deps, record.uid)
        else:
            follower.refresh(record)
        return follower

    @contextmanager
    def _alone(self, uid: str) -> Iterator[None]:
        """Keep one pod's fault to that pod; said once, until it changes."""
        try:
            yield
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            if self._faults.get(uid) != words:
                self._faults[uid] = words
                log.exception("a pod could not be looked at", pod_uid=uid)
        else:
            self._faults.pop(uid, None)

    def _ask(self, job_ids: Iterable[int], user: str) -> Mapping[int, JobState] | SlurmError:
        try:
            return self._deps.gateway.states(list(job_ids), user)
        except SlurmError as error:
            log.warning("slurm could not be asked", error=str(error))
            return error

    def _end(self, record: PodRecord) -> PodRecord:
        """Do what is due for a pod that is to be ended, given the last look at it."""
        if record.deleting is None or record.uid in self._given_up:
            return record
        try:
            if record.job_id is None:
                return drop(self._deps, record)
            last = self._seen.get(record.uid)
            if last is None or last.record.job_id != record.job_id:
                return record  # not looked at yet
            ender = self._enders.get(record.uid)
            if ender is None:
                ender = self._enders[record.uid] = Ender(self._deps, record.uid)
            ender.step(replace(last, record=record))
        except NotOurs as error:
            self._given_up.add(record.uid)
            log.error("left a job alone", pod_uid=record.uid, error=str(error))
            return self._deps.store.update(record.uid, "foreign", str(error))
        except SlurmError as error:
            log.warning("a pod could not be ended yet", pod_uid=record.uid, error=str(error))
        return record

    def _forget(self, open_uids: set[str]) -> None:
        """Pods that have ended need no follower; their last look stays in memory for a while.

        It is made from the store: another process may have closed them.
        """
        for uid in set(self._followers) - open_uids:
            del self._followers[uid]
            self._enders.pop(uid, None)
            self._seen[uid] = Follower(self._deps, uid).remembered()
        for uid in list(self._seen)[: max(0, len(self._seen) - REMEMBERED)]:
            if uid not in open_uids:
                del self._seen[uid]

    def _run(self) -> None:
        next_round = next_reading = time.monotonic()
        while not self._stop.is_set():
            self._wake.clear()
            try:
                if self._all_now or time.monotonic() >= next_round:
                    self._all_now = False
                    self.round()
                    next_round = time.monotonic() + self._interval
                    next_reading = time.monotonic() + RUNNER_SECONDS
                elif hinted := self._hints.due(time.monotonic()):
                    self.glance(hinted)
                elif time.monotonic() >= next_reading:
                    self.read_runners()
                    next_reading = time.monotonic() + RUNNER_SECONDS
            except Exception:  # one bad round must not end all following
                log.exception("a round of the driver failed")
                next_round = max(next_round, time.monotonic() + self._interval)
                next_reading = time.monotonic() + RUNNER_SECONDS
            if not self._all_now:
                until = min(next_round, next_reading, self._hints.next() or next_round)
                self._wake.wait(max(0.0, until - time.monotonic()))


def _settled(seen: Seen, ended: bool) -> bool:
    """Has the news come: the job's end, else a container that runs?"""
    if seen.standing.ended:
        return True
    return not ended and seen.status.phase != "Pending"
