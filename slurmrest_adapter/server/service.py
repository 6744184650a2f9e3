"""What the plugin API does, apart from HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.server import wire
from slurmrest_adapter.server.health import HealthWatch
from slurmrest_adapter.server.logstream import stream
from slurmrest_adapter.store.base import PodRecord
from slurmrest_adapter.tracking.driver.delete import ask
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.tracking.driver.events import Intake
from slurmrest_adapter.tracking.driver.loop import Loop
from slurmrest_adapter.tracking.driver.submit import submit

log = structlog.get_logger(__name__)

# Slurm's MessageTimeout and more: an outage shorter than this is not the node's.
GRACE_SECONDS = 600.0
# Health is asked for every few seconds; an answer as old as this means that a question hangs.
STALE_SECONDS = 60.0


class NotReady(Exception):
    """The ping has nothing to answer with; the text says why."""


class Service:
    """The plugin API's work. Safe for use by many threads.

    Args:
        deps: the driver's surroundings.
        loop: follows the pods; its memory answers ``/status``.
        health: its memory answers the ping.
        intake: counts SPANK events; None where the site has no plugin.
    """

    def __init__(self, deps: Deps, loop: Loop, health: HealthWatch, intake: Intake | None = None) -> None:
        self._deps = deps
        self._loop = loop
        self._health = health
        self._intake = intake
        self._creating = tuple(threading.Lock() for _ in range(256))

    def create(self, body: Any) -> dict[str, str]:
        """``POST /create``; the same UID twice is the same job.

        Raises:
            PodError, ConfigError, SlurmError: as `submit`.
        """
        envelope = wire.envelope(body)
        uid = str((envelope.pod.get("metadata") or {}).get("uid") or "")
        # Two creates of one UID must not both submit; others hardly ever wait for each other.
        with self._creating[hash(uid) % len(self._creating)]:
            record = submit(self._deps, envelope.pod, envelope.objects)
        self._loop.wake()
        log.info("created", pod_uid=record.uid, job_id=record.job_id, user=record.user)
        return {"PodUID": record.uid, "PodJID": str(record.job_id or "")}

    def delete(self, body: Any) -> str:
        """``POST /delete``: asks for the end and returns; the loop sees to it. Idempotent."""
        (uid, pod), *_ = wire.uids([body])
        record = self._deps.store.get(uid)
        if record is None:
            return f"pod {uid} is not known here; nothing to end"
        grace = (pod.get("metadata") or {}).get("deletionGracePeriodSeconds")
        ask(self._deps, record, grace if isinstance(grace, int) and not isinstance(grace, bool) else None)
        self._loop.wake()
        log.info("deletion asked for", pod_uid=uid, job_id=record.job_id)
        return f"pod {uid} is being ended"

    def status(self, body: Any) -> list[dict[str, Any]]:
        """``/status`` with pods: one entry for each, in that order, from memory."""
        answer = []
        for uid, pod in wire.uids(body):
            seen = self._loop.seen(uid)
            answer.append(wire.status(seen.record, seen.status) if seen else wire.unknown(uid, pod))
        return answer

    def ping(self) -> dict[str, Any]:
        """``/status`` with ``[]``: the node's totals, the last known ones while Slurm is away.

        Raises:
            NotReady: Slurm has never answered, or not for longer than the grace time.
        """
        health = self._health.now
        if health.capacity is None:
            raise NotReady(f"slurm has not answered yet: {health.error}")
        if not health.connected and self._deps.clock() - health.since > GRACE_SECONDS:
            raise NotReady(f"slurm has not answered for {GRACE_SECONDS:.0f} s: {health.error}")
        return {
            "status": "ok",
            "slurm_connected": health.connected,
            "message": health.error,
            "resources": health.capacity.resources(),
        }

    def system_info(self) -> dict[str, Any]:
        """``/system-info``, as interLink's Slurm plugin has it; with ``spank_events`` counted by what
        became of them, where they are taken."""
        health = self._health.now
        return {
            "status": "ok" if health.connected else "degraded",
            "timestamp": int(self._deps.clock()),
            "slurm_connected": health.connected,
            "message": health.error,
            "cluster": self._deps.site.cluster,
            **({"spank_events": dict(self._intake.counters())} if self._intake is not None else {}),
        }

    def ready(self) -> str:
        """ "" when pods can be taken, else why not."""
        if not self._loop.alive:
            return "the driver loop has died"
        if not self._health.alive:
            return "the health watch has died"
        health = self._health.now
        if not health.connected:
            return f"slurm could not be asked: {health.error or 'not yet'}"
        age = self._deps.clock() - health.since
        return f"slurm has not answered for {age:.0f} s" if age > STALE_SECONDS else ""

    def logs(self, body: Any, gone: Callable[[], bool]) -> Iterator[bytes]:
        """``/getLogs``: the bytes asked for.

        Args:
            gone: True once nobody reads any more; ends a follow.

        Raises:
            Invalid: no such pod or container.
        """
        options = wire.log_options(body)
        record = self._record(options)
        names = [c["name"] for c in record.skeleton["containers"]]
        if options.container not in names:
            raise Invalid("ContainerName", f"pod {record.name} has no container {options.container!r}")
        return stream(self._deps, self._loop, record, options, gone)

    def _record(self, options: wire.LogOptions) -> PodRecord:
        if options.uid:
            record = self._deps.store.get(options.uid)
            if record is not None:
                return record
        elif options.name:
            found = self._deps.store.find(f"{options.namespace or 'default'}/{options.name}")
            if found:
                return found[0]
        raise Invalid("PodUID", f"pod {options.uid or options.name!r} is not known here")
