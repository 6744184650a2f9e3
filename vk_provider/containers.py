"""Container statuses as the API server takes them, whatever the sidecar sent.

Only known fields pass, in the API server's own form (times in whole seconds, ``Z``): a field it
would drop or rewrite would look like a change at every poll.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

UNKNOWN = "ContainerStatusUnknown"
_KILLED = 137
_TEXTS = {
    "waiting": ("reason", "message"),
    "running": (),
    "terminated": ("reason", "message", "containerID"),
}
_TIMES = {"waiting": (), "running": ("startedAt",), "terminated": ("startedAt", "finishedAt")}
_MOST_MESSAGE = 4096

Status = dict[str, Any]


def state_of(status: Mapping[str, Any]) -> str:
    """waiting, running or terminated."""
    state = status.get("state")
    found = [
        kind for kind in ("terminated", "running", "waiting") if isinstance(state, Mapping) and kind in state
    ]
    return found[0] if found else "waiting"


def exit_code(status: Mapping[str, Any]) -> int | None:
    """The exit code of a terminated container, else None."""
    if state_of(status) != "terminated":
        return None
    return int(status["state"]["terminated"]["exitCode"])


def waiting(spec: Mapping[str, Any], reason: str, message: str = "") -> Status:
    """The status of a container that has not started."""
    state = {"reason": reason, **({"message": message[:_MOST_MESSAGE]} if message else {})}
    return _status(spec, {"waiting": state}, {})


def lost(spec: Mapping[str, Any]) -> Status:
    """The status of a container nobody said a word about when its job ended: never a success."""
    gone = {"exitCode": _KILLED, "reason": UNKNOWN, "message": "no record of this container's end"}
    return _status(spec, {"terminated": gone}, {})


def normal(spec: Mapping[str, Any], told: Mapping[str, Any]) -> Status:
    """What the sidecar told about the container `spec`, in the API server's form."""
    state = _state(told.get("state")) or {"waiting": {"reason": "ContainerCreating"}}
    return _status(spec, state, told)


def _status(spec: Mapping[str, Any], state: dict[str, Any], told: Mapping[str, Any]) -> Status:
    restarts = told.get("restartCount")
    running = "running" in state
    status: Status = {
        "name": spec.get("name"),
        "image": str(told.get("image") or spec.get("image") or ""),
        "imageID": str(told.get("imageID") or ""),
        "ready": running and told.get("ready") is True,
        "restartCount": restarts if isinstance(restarts, int) and restarts >= 0 else 0,
        "started": running and told.get("started") is not False,
        "state": state,
        "lastState": _state(told.get("lastState")),
    }
    if told.get("containerID"):
        status["containerID"] = str(told["containerID"])
    return status


def _state(told: Any) -> dict[str, Any]:
    if not isinstance(told, Mapping):
        return {}
    for kind in ("terminated", "running", "waiting"):
        given = told.get(kind)
        if not isinstance(given, Mapping):
            continue
        state: dict[str, Any] = {k: str(given[k])[:_MOST_MESSAGE] for k in _TEXTS[kind] if given.get(k)}
        for key in _TIMES[kind]:
            if moment := time_of(given.get(key)):
                state[key] = moment
        if kind == "terminated":
            _add_code(state, given)
        return {kind: state}
    return {}


def _add_code(state: dict[str, Any], given: Mapping[str, Any]) -> None:
    code, signal = given.get("exitCode"), given.get("signal")
    if isinstance(code, int) and not isinstance(code, bool):
        state["exitCode"] = code
    else:  # Go leaves out no exitCode; who does has no record of the end
        state.update(exitCode=_KILLED, reason=UNKNOWN)
    if isinstance(signal, int) and signal:
        state["signal"] = signal


def time_of(value: Any) -> str | None:
    """An RFC 3339 time in whole seconds and UTC; None for what is none, or Go's zero time."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None or moment.year <= 1:
        return None
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
