"""A pod's status by the kubelet's rules: pure.

What the API server has and what the sidecar says are merged; the patch holds only what changed.
The start time never moves, a condition's transition time moves when its status flips and only
then, a terminated container stays terminated unless it was restarted, a finished pod stays as it
is, and a container that is missing at the end is never a success.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vk_provider import containers, deadline
from vk_provider.cache import Pod
from vk_provider.containers import Status, exit_code, state_of

FINISHED = ("Succeeded", "Failed")
PHASES = ("Pending", "Running", *FINISHED)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the pod is.

    Attributes:
        now: RFC 3339, whole seconds, UTC.
        host_ip: the node's address.
        pod_ip: the pod's.
    """

    now: str
    host_ip: str
    pod_ip: str


def is_finished(pod: Pod) -> bool:
    """Has the pod's phase come to its end?"""
    return (pod.get("status") or {}).get("phase") in FINISHED


def has_ended(entry: Mapping[str, Any] | None) -> bool:
    """Does the sidecar say that no process of the pod is left (or that it knows of no job)?"""
    if entry is None:
        return True
    if entry.get("phase") in FINISHED:
        return True
    if entry.get("phase") in PHASES:
        return False
    told = [each for each in entry.get("containers") or () if isinstance(each, Mapping)]
    return bool(told) and all(state_of(each) == "terminated" for each in told)


def mirrored(pod: Pod, entry: Mapping[str, Any], place: Place, overdue: bool = False) -> dict[str, Any]:
    """The pod's status with what the sidecar says (an entry of its answer to /status).

    Beside interLink's fields an entry may have the pod's own ``phase``, ``reason``, ``message``
    and ``conditions`` (of types that are not ours). A pod that is overdue, now or when its status
    was last written, has failed by that, however its containers end.
    """
    spec, old = pod.get("spec") or {}, pod.get("status") or {}
    if is_finished(pod):
        return dict(old)
    ended = has_ended(entry)
    inits = _merged(
        spec, "initContainers", old.get("initContainerStatuses"), entry.get("initContainers"), ended
    )
    apps = _merged(spec, "containers", old.get("containerStatuses"), entry.get("containers"), ended)
    told = entry.get("phase")
    phase = _phase(spec, inits, apps)
    if told in PHASES and (told != "Succeeded" or phase == "Succeeded"):
        phase = told
    extra = [c for c in entry.get("conditions") or () if isinstance(c, Mapping) and c.get("type")]
    words = {key: str(entry[key]) for key in ("reason", "message") if entry.get(key)}
    if overdue or old.get("reason") == deadline.REASON:
        words = {"reason": deadline.REASON, "message": deadline.MESSAGE}
        phase = "Failed" if phase in FINISHED else phase
    return _status(pod, place, phase, inits, apps, words, extra)


def held_back(
    pod: Pod, place: Place, reason: str, message: str, concerned: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The status of a pod that is not submitted yet.

    Args:
        pod: the raw pod.
        place: where and when.
        reason, message: of the containers that wait for something.
        concerned: which ones; empty for all. The others say ContainerCreating.
    """
    spec = pod.get("spec") or {}
    begin = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    if reason == "ContainerCreating":
        reason = begin
    groups = [
        [
            containers.waiting(each, reason, message)
            if not concerned or each.get("name") in concerned
            else containers.waiting(each, begin)
            for each in spec.get(group) or ()
        ]
        for group in ("initContainers", "containers")
    ]
    return _status(pod, place, "Pending", groups[0], groups[1], {})


def refused(pod: Pod, place: Place, reason: str, message: str) -> dict[str, Any]:
    """The status of a pod that will never run; like the kubelet, without container statuses."""
    return _status(pod, place, "Failed", [], [], {"reason": reason, "message": message})


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What of `new` differs from `old`: the body of a strategic merge patch of ``status``."""
    patch = {
        key: value for key, value in new.items() if key != "conditions" and not _same(old.get(key), value)
    }
    known = {condition["type"]: condition for condition in old.get("conditions") or ()}
    flipped = [c for c in new.get("conditions") or () if not _same(known.get(c["type"]), c)]
    for key in ("reason", "message"):
        if old.get(key) and key not in new:
            patch[key] = None
    return {**patch, "conditions": flipped} if flipped else patch


def waiting_words(status: Mapping[str, Any]) -> str:
    """Why the pod's first waiting app container waits, "" if it says nothing."""
    for each in status.get("containerStatuses") or ():
        if state_of(each) == "waiting":
            return str(((each.get("state") or {}).get("waiting") or {}).get("message") or "")
    return ""


def _merged(spec: Mapping[str, Any], group: str, old: Any, told: Any, ended: bool) -> list[Status]:
    before = {each["name"]: each for each in old or ()}
    said = {each.get("name"): each for each in told or () if isinstance(each, Mapping)}
    return [
        _one(each, before.get(each.get("name")), said.get(each.get("name")), ended, group, spec)
        for each in spec.get(group) or ()
    ]


def _one(
    spec: Mapping[str, Any],
    old: Status | None,
    told: Mapping[str, Any] | None,
    ended: bool,
    group: str,
    pods: Mapping[str, Any],
) -> Status:
    has_inits = bool(pods.get("initContainers"))
    if told is None:
        if old is not None and (not ended or state_of(old) == "terminated"):
            return dict(old)
        # An init container nobody ran after the job's end is as lost as any other.
        begin = "PodInitializing" if has_inits else "ContainerCreating"
        return containers.lost(spec) if ended else containers.waiting(spec, begin)
    new = containers.normal(spec, told)
    if has_inits and new["state"].get("waiting", {}).get("reason") == "ContainerCreating":
        new["state"]["waiting"]["reason"] = "PodInitializing"  # kubectl counts init containers by it
    if group == "initContainers" and exit_code(new) == 0:
        new["ready"] = True
    if old is None or state_of(old) != "terminated":
        return new
    restarted = new["restartCount"] > int(old.get("restartCount") or 0)
    same_end = state_of(new) == "terminated" and exit_code(old) == exit_code(new)
    waits = not ended and _is_between_runs(new, old) and _may_restart(spec, group, pods, old)
    return new if restarted or same_end or waits else dict(old)


def _is_between_runs(new: Status, old: Status) -> bool:
    """Does the container wait for its next start, its last run the one that is known?"""
    last = new["lastState"].get("terminated")
    return state_of(new) == "waiting" and last is not None and last["exitCode"] == exit_code(old)


def _may_restart(spec: Mapping[str, Any], group: str, pods: Mapping[str, Any], old: Status) -> bool:
    """Does the restart policy start a container again that ended like that?"""
    policy = spec.get("restartPolicy") or pods.get("restartPolicy") or "Always"
    if group == "initContainers" and policy == "Always" and not _is_sidecar(spec):
        policy = "OnFailure"  # one that succeeded is done
    return bool(policy == "Always" or (policy == "OnFailure" and exit_code(old) != 0))


def _is_sidecar(spec: Mapping[str, Any]) -> bool:
    return spec.get("restartPolicy") == "Always"


def _init_done(spec: Mapping[str, Any], status: Status) -> bool:
    if _is_sidecar(spec):
        return state_of(status) != "waiting"
    return exit_code(status) == 0


def _phase(spec: Mapping[str, Any], inits: Sequence[Status], apps: Sequence[Status]) -> str:
    states = [state_of(each) for each in apps]
    plain = [s for c, s in zip(spec.get("initContainers") or (), inits, strict=True) if not _is_sidecar(c)]
    init_failed = any(exit_code(each) not in (None, 0) for each in plain)
    if apps and all(state == "terminated" for state in states):
        return "Failed" if init_failed or any(exit_code(each) != 0 for each in apps) else "Succeeded"
    if "running" in states or "terminated" in states:
        return "Running"
    init_active = any(state_of(each) == "running" for each in plain)
    return "Failed" if init_failed and not init_active else "Pending"


def _status(
    pod: Pod,
    place: Place,
    phase: str,
    inits: list[Status],
    apps: list[Status],
    words: Mapping[str, str],
    extra: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    old = pod.get("status") or {}
    status: dict[str, Any] = {"phase": phase, **words}
    if inits:
        status["initContainerStatuses"] = inits
    if apps:
        status["containerStatuses"] = apps
    status["startTime"] = old.get("startTime") or place.now
    status["hostIP"] = old.get("hostIP") or place.host_ip
    pod_ip = old.get("podIP") or (place.pod_ip if phase == "Running" else "")
    if pod_ip:
        status["podIP"] = pod_ip
        status["podIPs"] = old.get("podIPs") or [{"ip": pod_ip}]
    status["conditions"] = _conditions(pod, phase, inits, apps, place.now, extra)
    return status


def _conditions(
    pod: Pod,
    phase: str,
    inits: Sequence[Status],
    apps: Sequence[Status],
    now: str,
    extra: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    spec, old = pod.get("spec") or {}, (pod.get("status") or {}).get("conditions") or ()
    pairs = list(zip(spec.get("initContainers") or (), inits, strict=False))
    not_done = [str(c.get("name")) for c, s in pairs if not _init_done(c, s)]
    if phase == "Failed" and not inits and spec.get("initContainers"):
        not_done = [str(c.get("name")) for c in spec["initContainers"]]
    waiting_for = [str(s["name"]) for c, s in pairs if _is_sidecar(c) and not s["ready"]]
    unready = waiting_for + [str(s["name"]) for s in apps if not s["ready"]]
    made = [_condition("PodScheduled", True)]
    if not_done:
        words = f"containers with incomplete status: [{' '.join(not_done)}]"
        made.append(_condition("Initialized", False, "ContainersNotInitialized", words))
    else:
        made.append(_condition("Initialized", True, "PodCompleted" if phase == "Succeeded" else ""))
    ready = phase == "Running" and not unready and bool(apps)
    reason, words = "", ""
    if not ready:
        reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
        if reason == "ContainersNotReady":
            words = f"containers with unready status: [{' '.join(unready)}]"
    gates = {c.get("type") for c in old if c.get("status") == "True"}
    gates_open = all(gate.get("conditionType") in gates for gate in spec.get("readinessGates") or ())
    made.append(_condition("ContainersReady", ready, reason, words))
    if ready and not gates_open:
        made.append(_condition("Ready", False, "ReadinessGatesNotReady", "a readiness gate is not True"))
    else:
        made.append(_condition("Ready", ready, reason, words))
    ours = {each["type"] for each in made}
    for each in extra:
        if each["type"] not in ours:
            value = str(each.get("status")) == "True"
            made.append(
                _condition(each["type"], value, str(each.get("reason") or ""), str(each.get("message") or ""))
            )
    known = {condition["type"]: condition for condition in old}
    return [_with_time(each, known.get(each["type"]), now) for each in made]


def _condition(kind: str, value: bool, reason: str = "", message: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"type": kind, "status": "True" if value else "False"}
    # None, not "": it takes away what a former status had said.
    made["reason"] = reason or None
    made["message"] = message or None
    return made


def _with_time(new: dict[str, Any], old: Mapping[str, Any] | None, now: str) -> dict[str, Any]:
    if old is not None and old.get("status") == new["status"]:
        return {**new, "lastTransitionTime": old.get("lastTransitionTime") or now}
    return {**new, "lastTransitionTime": now}


def _same(old: Any, new: Any) -> bool:
    return bool(_bare(old) == _bare(new))


def _bare(value: Any) -> Any:
    """The value without what says nothing: the API server leaves some of it out, some not."""
    if isinstance(value, Mapping):
        bare = {key: _bare(each) for key, each in value.items() if key != "lastProbeTime"}
        return {k: v for k, v in bare.items() if v not in (None, "", []) and (k, v) != ("lastState", {})}
    if isinstance(value, list | tuple):
        return [_bare(each) for each in value]
    return value
