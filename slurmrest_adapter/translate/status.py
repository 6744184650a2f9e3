"""What a pod's status is, given its job and what its runner wrote. A pure function.

Two truths meet here. The runner's is about containers: a record it wrote before the job's end
stands, whatever ended the job. Slurm's is about the job: it decides every container without a
record, and the pod's reason. An absent record is never a success.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slurmrest_adapter.domain.gres import gpu_indices
from slurmrest_adapter.domain.jobs import JobInfo
from slurmrest_adapter.domain.spank import NOTHING, Observed
from slurmrest_adapter.domain.states import Kind, Standing

SIGKILL_CODE = 137
UNKNOWN_REASON = "ContainerStatusUnknown"


@dataclass(frozen=True, slots=True)
class Ending:
    """What one of Slurm's outcomes means for a pod (CONTRACT.md, "Outcomes").

    Attributes:
        pod_reason: the pod's own reason, "" when the containers say it all.
        container_reason: reason of a container without a record.
        words: what happened, for people.
        always_failed: the pod failed whatever its containers say.
    """

    pod_reason: str
    container_reason: str
    words: str
    always_failed: bool = True


ENDINGS: Mapping[str, Ending] = {
    "COMPLETED": Ending("", UNKNOWN_REASON, "completed", False),
    "FAILED": Ending("", UNKNOWN_REASON, "failed", False),
    "TIMEOUT": Ending("DeadlineExceeded", "Error", "reached Slurm's time limit"),
    "DEADLINE": Ending("DeadlineExceeded", "Error", "could not finish before its deadline"),
    "CANCELLED": Ending("SlurmJobCancelled", "Error", "was cancelled"),
    "OUT_OF_MEMORY": Ending("", "OOMKilled", "ran out of memory"),
    "NODE_FAIL": Ending("NodeLost", UNKNOWN_REASON, "lost its node"),
    "BOOT_FAIL": Ending("SlurmLaunchFailed", UNKNOWN_REASON, "could not boot its node"),
    "LAUNCH_FAILED": Ending("SlurmLaunchFailed", UNKNOWN_REASON, "could not be launched"),
    "LOST": Ending(
        "SlurmJobLost", UNKNOWN_REASON, "is known to Slurm no more, and nothing tells how it ended"
    ),
    "PREEMPTED": Ending("Preempted", "Error", "was preempted"),
}

# Reasons for which the runner itself ends a pod that has failed by that.
RUNNER_ENDINGS: Mapping[str, Ending] = {
    "DeadlineExceeded": Ending(
        "DeadlineExceeded", "Error", "was active for longer than its activeDeadlineSeconds"
    ),
    "GPUsIdle": Ending("GPUsIdle", "Error", "held GPUs and did nothing with them"),
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the status depends on.

    Attributes:
        containers: ``{"name", "init", "image", "sidecar"}`` in the spec's order, init containers
            first; the last key may be absent.
        job: the job as last seen, None before the first look.
        standing: its classified state.
        runner: the runner's status file, empty when there is none.
        refused: Slurm's words when the submit was refused.
        deleting: the pod's deletion was asked for.
        killed_by: user who cancelled the job, as slurmdbd knows it.
        notes: said at the end of the message.
        unreachable: why Slurm could not be asked just now; changes nothing but the message.
        observed: what SPANK events say; fills what Slurm and the runner do not tell, decides nothing.
    """

    containers: Sequence[Mapping[str, Any]]
    job: JobInfo | None
    standing: Standing
    runner: Mapping[str, Any]
    refused: str | None = None
    deleting: bool = False
    killed_by: str = ""
    notes: Sequence[str] = ()
    unreachable: str = ""
    observed: Observed = NOTHING


@dataclass(frozen=True, slots=True)
class PodStatus:
    """A pod's status.

    Attributes:
        phase: Pending, Running, Succeeded or Failed.
        reason, message: the pod's own.
        containers, init_containers: v1.ContainerStatus maps, in the spec's order.
        exit_code: None until the end; then the first failed container's, in the spec's order,
            never 0 for a pod that failed.
        node: the node it runs or ran on.
        gpus: indices of the job's GPUs on that node.
        start_time: RFC 3339, "" before the start.
        gpus_from, start_from: who says so: ``slurm``, ``runner``, ``spank``; "" for nobody.
        conditions: v1.PodCondition maps that the job's end gives (DisruptionTarget), else empty.
    """

    phase: str
    reason: str
    message: str
    containers: tuple[Mapping[str, Any], ...]
    init_containers: tuple[Mapping[str, Any], ...]
    exit_code: int | None
    node: str
    gpus: tuple[int, ...]
    start_time: str
    conditions: tuple[Mapping[str, str], ...] = ()
    gpus_from: str = ""
    start_from: str = ""


def pod_status(facts: Facts) -> PodStatus:
    """A pod's status; see the module's text."""
    ended = facts.standing.ended or facts.refused is not None
    ending = _ending(facts)
    records = {record["name"]: record for record in facts.runner.get("containers", ())}
    statuses = [
        _container(c, records.get(c["name"]), facts, ending if ended else None) for c in facts.containers
    ]
    phase = _phase(facts, ending, statuses, ended)
    gpus, gpus_from = _gpus(facts)
    start, start_from = _start(facts)
    return PodStatus(
        phase=phase,
        reason=_reason(facts, ending, phase),
        message=_message(facts, ending, phase, records),
        containers=tuple(s for s, c in zip(statuses, facts.containers, strict=True) if not c["init"]),
        init_containers=tuple(s for s, c in zip(statuses, facts.containers, strict=True) if c["init"]),
        exit_code=_exit_code(facts, statuses, phase) if ended else None,
        node=facts.job.nodes if facts.job else "",
        gpus=gpus,
        start_time=start,
        conditions=_conditions(facts, phase),
        gpus_from=gpus_from,
        start_from=start_from,
    )


def rfc3339(seconds: float | None) -> str:
    """POSIX seconds as Kubernetes writes times, "" for none."""
    if not seconds:
        return ""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ending(facts: Facts) -> Ending:
    if facts.refused is not None and facts.deleting:
        return Ending("", "Error", f"was not made: {facts.refused}")
    if facts.refused is not None:
        return Ending("SlurmRejected", "Error", f"was refused: {facts.refused}")
    ending = ENDINGS.get(facts.standing.outcome, ENDINGS["FAILED"])
    if facts.deleting and facts.standing.outcome in ("CANCELLED", "FAILED"):
        return Ending("", "Error", "was ended by the pod's deletion")
    return RUNNER_ENDINGS.get(str(_runner_end(facts).get("reason")), ending)


def _runner_end(facts: Facts) -> Mapping[str, Any]:
    return facts.runner.get("end") or {}


def _container(
    container: Mapping[str, Any], record: Mapping[str, Any] | None, facts: Facts, ending: Ending | None
) -> dict[str, Any]:
    """One v1.ContainerStatus. `ending` is None while the job lives."""
    state: dict[str, Any]
    if record is None or (record["state"] != "terminated" and ending is not None):
        state = _without_record(record, facts, ending)
    elif record["state"] == "terminated":
        state = {"terminated": _terminated(record)}
        if facts.standing.outcome == "OUT_OF_MEMORY" and record.get("signal") == signal.SIGKILL:
            # The runner saw a kill; Slurm knows whose it was.
            state["terminated"]["reason"] = "OOMKilled"
    elif record["state"] == "running":
        state = {"running": {"startedAt": rfc3339(record.get("started_at"))}}
    else:
        state = {"waiting": _reasons(record.get("reason") or "ContainerCreating", record.get("message"))}
    running = "running" in state
    sidecar, last = container.get("sidecar"), (record or {}).get("last_state")
    done_init = container["init"] and not sidecar and state.get("terminated", {}).get("exitCode") == 0
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": (record or {}).get("image_id") or "",
        "ready": running or bool(done_init),
        "started": running,
        "restartCount": (record or {}).get("restart_count") or 0,
        "state": state,
        "lastState": {"terminated": _terminated(last)} if last else {},
    }


def _without_record(record: Mapping[str, Any] | None, facts: Facts, ending: Ending | None) -> dict[str, Any]:
    if ending is None:
        return {"waiting": _reasons(*_waiting(facts))}
    if record is not None and record["state"] == "waiting" and record.get("last_state"):
        # It waited for its next start, which never came.
        return {"terminated": _terminated(record["last_state"])}
    if record is not None and record["state"] == "waiting" and facts.runner.get("end"):
        # The runner came to its own end and never started this one: an init container failed.
        return {"waiting": _reasons(record.get("reason") or "PodInitializing", record.get("message"))}
    terminated = {
        "exitCode": SIGKILL_CODE,
        "reason": ending.container_reason,
        "message": f"the job {ending.words} before the container's own end was recorded",
    }
    if record is not None and record.get("started_at"):
        terminated["startedAt"] = rfc3339(record["started_at"])
    if facts.job is not None and facts.job.end_time:
        terminated["finishedAt"] = rfc3339(facts.job.end_time)
    return {"terminated": terminated}


def _waiting(facts: Facts) -> tuple[str, str]:
    """Why a container does not run yet, in Slurm's words while the job is in the queue."""
    if facts.job is None:
        return "ContainerCreating", "the job is being submitted"
    if facts.standing.kind in (Kind.QUEUED, Kind.HELD):
        return "ContainerCreating", _queue_words(facts.job, facts.standing)
    return "ContainerCreating", f"Slurm job {facts.job.job_id} has started, the container has not yet"


def _queue_words(job: JobInfo, standing: Standing) -> str:
    how = "is held" if standing.kind is Kind.HELD else "is queued"
    why = job.reason if job.reason not in ("", "None") else "no reason given yet"
    text = f"Slurm job {job.job_id} {how}: {why}"
    return f"{text} ({job.description})" if job.description else text


def _terminated(record: Mapping[str, Any]) -> dict[str, Any]:
    terminated: dict[str, Any] = {
        "exitCode": record["exit_code"] if record.get("exit_code") is not None else SIGKILL_CODE,
        "reason": record.get("reason") or UNKNOWN_REASON,
    }
    if record.get("signal"):
        terminated["signal"] = record["signal"]
    if record.get("message"):
        terminated["message"] = record["message"]
    for ours, theirs in (("started_at", "startedAt"), ("finished_at", "finishedAt")):
        if record.get(ours):
            terminated[theirs] = rfc3339(record[ours])
    return terminated


def _reasons(reason: str, message: str | None) -> dict[str, str]:
    return {"reason": reason, "message": message} if message else {"reason": reason}


def _phase(facts: Facts, ending: Ending, statuses: Sequence[Mapping[str, Any]], ended: bool) -> str:
    if ended:
        deciding = [s for s, c in zip(statuses, facts.containers, strict=True) if not c.get("sidecar")]
        if facts.refused is not None or ending.always_failed or not _all_completed(deciding):
            return "Failed"
        return "Succeeded"
    apps = [s for s, c in zip(statuses, facts.containers, strict=True) if not c["init"]]
    if any("waiting" not in s["state"] or s["lastState"] for s in apps):
        return "Running"
    return "Pending"


def _all_completed(statuses: Sequence[Mapping[str, Any]]) -> bool:
    return all(s["state"].get("terminated", {}).get("exitCode") == 0 for s in statuses)


def _exit_code(facts: Facts, statuses: Sequence[Mapping[str, Any]], phase: str) -> int:
    for status, container in zip(statuses, facts.containers, strict=True):
        terminated = status["state"].get("terminated", {})
        # A sidecar decides only where it never ran, because its image could not be had.
        if terminated.get("exitCode") and not (container.get("sidecar") and terminated.get("startedAt")):
            return int(terminated["exitCode"])
    # Every container ended well and the pod failed all the same: a time limit, a cancel.
    return 0 if phase == "Succeeded" else SIGKILL_CODE


def _reason(facts: Facts, ending: Ending, phase: str) -> str:
    return ending.pod_reason if phase == "Failed" else ""


def _message(facts: Facts, ending: Ending, phase: str, records: Mapping[str, Mapping[str, Any]]) -> str:
    parts = []
    job = facts.job
    if facts.refused is not None:
        parts.append(f"the job {ending.words}")
    elif job is None:
        parts.append("the job is being submitted")
    elif facts.standing.ended:
        parts.append(
            f"Slurm job {job.job_id} {ending.words}{_which_node(facts)}{_by_whom(facts)}: "
            f"{_end_words(job, facts.standing)}"
        )
        lost = [c["name"] for c in facts.containers if c["name"] not in records]
        if facts.standing.outcome in ("COMPLETED", "FAILED") and lost:
            parts.append(f"no record was found of container {', '.join(lost)}")
        if _runner_end(facts).get("message"):
            parts.append(str(_runner_end(facts)["message"]))
    elif facts.standing.kind in (Kind.QUEUED, Kind.HELD):
        parts.append(_queue_words(job, facts.standing))
    elif facts.standing.kind is Kind.UNKNOWN:
        words = facts.standing.words or "no state"
        parts.append(f"Slurm job {job.job_id}: {words}, which says neither that it runs nor that it ended")
    else:
        gpus = ",".join(map(str, _gpus(facts)[0]))
        parts.append(
            f"Slurm job {job.job_id} is {facts.standing.kind.value} on {job.nodes or 'no node yet'}"
            + (f", GPUs {gpus}" if gpus else "")
        )
    if facts.unreachable:
        parts.append(f"Slurm could not be asked just now: {facts.unreachable}")
    return "; ".join([*parts, *facts.notes])


def _which_node(facts: Facts) -> str:
    """An admin has to look at that one."""
    nodes = facts.job.nodes if facts.job is not None else ""
    return f" {nodes}" if nodes and facts.standing.outcome in ("NODE_FAIL", "BOOT_FAIL") else ""


def _by_whom(facts: Facts) -> str:
    if facts.standing.outcome != "CANCELLED" or facts.deleting:
        return ""
    return f" by user {facts.killed_by}" if facts.killed_by else ""


def _end_words(job: JobInfo, standing: Standing) -> str:
    """State, reason and exit code as CONTRACT.md wants them in every message."""
    reason = job.reason if job.reason not in ("", "None") else "none"
    return f"state {standing.words}, reason {reason}, {job.exit_code.words()}"


def _gpus(facts: Facts) -> tuple[tuple[int, ...], str]:
    """Indices while Slurm says them, else what the runner saw (Slurm forgets them at the end), else
    what the node told; and who says so."""
    if facts.job is not None:
        found = gpu_indices(facts.job.gres)
        if found:
            return found, "slurm"
    told = (facts.runner.get("job") or {}).get("gpus") or ()
    seen = tuple(int(index) for index in told if str(index).isdecimal())
    if seen:
        return seen, "runner"
    return (facts.observed.gpus, "spank") if facts.observed.gpus else ((), "")


def _conditions(facts: Facts, phase: str) -> tuple[Mapping[str, str], ...]:
    if facts.standing.outcome != "PREEMPTED" or phase != "Failed":
        return ()
    since = rfc3339(facts.job.end_time) if facts.job else ""
    preempted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptedBySlurm",
        "message": "Slurm gave the job's resources to another job",
    }
    return ({**preempted, "lastTransitionTime": since} if since else preempted,)


def _start(facts: Facts) -> tuple[str, str]:
    """The job's start, and who says so; containers start within it. Slurm's planned start of a queued
    job is none."""
    if facts.job is None or facts.standing.kind in (Kind.QUEUED, Kind.HELD, Kind.UNKNOWN):
        return "", ""
    if facts.job.start_time:
        return rfc3339(facts.job.start_time), "slurm"
    return (rfc3339(facts.observed.started), "spank") if facts.observed.started else ("", "")
