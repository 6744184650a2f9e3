"""The JSON documents of ``--output json``; docs/json.md describes them, golden files hold them.

Fields are only ever added within a schema's version. Times are RFC 3339, memory is MiB, other
durations are seconds; what is not known is null, never left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurmrest_adapter.sources.spool import Drained
from slurmrest_adapter.store.base import StoryLine
from slurmrest_adapter.tracking.driver.follow import Seen
from slurmrest_adapter.translate.status import rfc3339

POD = "slurmrest-adapter/pod/v1"
PODS = "slurmrest-adapter/pods/v1"
ERROR = "slurmrest-adapter/error/v1"

_USAGE = (
    "source", "elapsed_seconds", "wait_seconds", "gpus", "gpu_seconds", "cpus", "cpu_seconds",
    "cpu_used_seconds", "memory_mib", "max_rss_mib", "energy_joules", "from_events",
)  # fmt: skip


def pod(seen: Seen, story: Sequence[StoryLine] = ()) -> dict[str, Any]:
    """One pod: what Kubernetes would say, the Slurm job behind it, its usage and its story."""
    record, status = seen.record, seen.status
    return {
        "schema": POD,
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "phase": status.phase,
        "reason": status.reason or None,
        "message": status.message,
        "exitCode": status.exit_code,
        "conditions": [dict(condition) for condition in status.conditions],
        "warnings": list(record.warnings),
        "changed": _changed(record.changed),
        "initContainers": [_container(c, record.runner) for c in status.init_containers],
        "containers": [_container(c, record.runner) for c in status.containers],
        "job": _job(seen),
        "usage": {key: record.usage.get(key) for key in _USAGE} if record.usage else None,
        "story": [{"time": rfc3339(line.time), "event": line.event, "text": line.text} for line in story],
    }


def pods(seen: Sequence[Seen]) -> dict[str, Any]:
    """Several pods, without their stories."""
    return {"schema": PODS, "pods": [pod(one) for one in seen]}


def error(message: str, field: str | None = None) -> dict[str, Any]:
    """Why nothing came of it."""
    return {"schema": ERROR, "error": message, "field": field}


def drained(schema: str, directory: Path, address: str, done: Drained) -> dict[str, Any]:
    """What became of a spool."""
    return {
        "schema": schema,
        "directory": str(directory),
        "address": address,
        "delivered": done.delivered,
        "kept": done.kept,
        "refused": [{"file": name, "why": why} for name, why in done.refused.items()],
        "notTried": done.left,
        "stopped": done.stopped or None,
        "dropped": done.dropped,
    }


def _changed(changed: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    if changed is None:
        return None
    return [{key: one[key] for key in ("field", "asked", "got")} for one in changed]


def _job(seen: Seen) -> dict[str, Any] | None:
    record, job = seen.record, seen.record.job
    if record.job_id is None:
        return None
    code = job.get("exit_code") or {}
    return {
        "id": record.job_id,
        "name": record.spec["name"],
        "cluster": record.cluster,
        "user": record.user,
        "account": job.get("account") or record.spec.get("account"),
        "partition": job.get("partition") or record.spec.get("partition"),
        "state": list(job.get("states") or ()),
        "standing": seen.standing.kind.value,
        "reason": None if job.get("reason") in (None, "", "None") else job["reason"],
        "exitCode": {"returnCode": code.get("return_code"), "signal": code.get("signal")},
        "node": seen.status.node or None,
        "gpus": list(seen.status.gpus),
        "gpusFrom": seen.status.gpus_from or None,
        "restarts": record.restart_count,
        "submitTime": rfc3339(job.get("submit_time")) or None,
        "startTime": seen.status.start_time or None,
        "startFrom": seen.status.start_from or None,
        "endTime": (rfc3339(job.get("end_time")) or None) if seen.standing.ended else None,
        "events": _events(seen),
    }


def _events(seen: Seen) -> dict[str, Any] | None:
    """What the node told by SPANK events."""
    told = seen.observed
    if not told.events:
        return None
    return {
        "node": told.node,
        "startedAt": rfc3339(told.started) or None,
        "endedAt": rfc3339(told.ended) or None,
        "gpus": None if told.gpus is None else list(told.gpus),
        "cpuSeconds": told.cpu_s,
        "peakMib": _mib(told.peak_bytes),
        "count": told.events,
    }


def _mib(size: int | None) -> int | None:
    return None if size is None else -(-size // 2**20)


_RUN = ("reason", "message", "exitCode", "signal", "startedAt", "finishedAt")


def _container(status: Mapping[str, Any], runner: Mapping[str, Any]) -> dict[str, Any]:
    (kind, detail), *_ = status["state"].items()
    last = status["lastState"].get("terminated")
    told: Mapping[str, Any] = next(
        (c for c in runner.get("containers", ()) if c["name"] == status["name"]), {}
    )
    return {
        "name": status["name"],
        "image": status["image"],
        "imageID": status["imageID"] or None,
        "state": kind,
        **{key: detail.get(key) for key in _RUN},
        "restarts": status["restartCount"],
        "lastState": {key: last.get(key) for key in _RUN} if last else None,
        "gpus": [int(index) for index in told.get("gpus") or () if str(index).isdecimal()],
        "cpuSeconds": told.get("cpu_s"),
        "memoryMib": _mib(told.get("memory_bytes")),
        "memoryPeakMib": _mib(told.get("memory_peak_bytes")),
    }
