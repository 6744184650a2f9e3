"""The shape of a runner's status, held against what no runner would write.

The file is the job's user's own, who may have written anything into it. Whatever works with a
status later may rely on the kinds of its values; what they say is still only the user's word
about the user's own pod.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from slurmrest_adapter.sources.userfiles import UntrustedFile

_STATES = ("waiting", "running", "terminated")
_LATEST = 2**33  # POSIX seconds; far from where calendars end
_MOST = 10_000  # of anything that is counted
_MOST_SECONDS = 2**53  # on processors
_MOST_BYTES = 2**53
_TEXT = 4096  # characters of one text


def checked(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status whose values are all of the kinds that a runner writes.

    Keys that this version does not know are left out; texts are cut to 4096 characters and hold
    only what can be printed and encoded.

    Raises:
        UntrustedFile: another kind of value; the text names the field.
    """
    containers = status.get("containers")
    if not isinstance(containers, list) or len(containers) > _MOST:
        raise UntrustedFile("status.json: containers: a list is needed")
    done = [_container(one, f"containers[{index}]") for index, one in enumerate(containers)]
    if len({one["name"] for one in done}) != len(done):
        raise UntrustedFile("status.json: containers: the same name twice")
    job, end, runner = (_map(status.get(key), key) for key in ("job", "end", "runner"))
    return {
        "schema": status["schema"],
        "uid": status["uid"],
        "seq": _count(status.get("seq", 0), "seq", 2**53),
        "time": _time(status.get("time"), "time"),
        "phase": _text(status.get("phase"), "phase"),
        "job": {
            "id": _text(job.get("id"), "job.id"),
            "node": _text(job.get("node"), "job.node"),
            "restart": _count(job.get("restart") or 0, "job.restart", 2**31),
            "gpus": _texts(job.get("gpus"), "job.gpus"),
        },
        "runner": {key: _text(runner.get(key), f"runner.{key}") for key in ("version", "mode", "python")},
        "end": None
        if status.get("end") is None
        else {
            "exit_code": _code(end.get("exit_code"), "end.exit_code"),
            "reason": _text(end.get("reason"), "end.reason"),
            "message": _text(end.get("message"), "end.message"),
        },
        "containers": done,
    }


def _container(raw: Any, where: str) -> dict[str, Any]:
    one = _map(raw, where)
    if not isinstance(one.get("name"), str):
        raise UntrustedFile(f"status.json: {where}.name: a text is needed")
    if one.get("state") not in _STATES:
        raise UntrustedFile(f"status.json: {where}.state: {', '.join(_STATES)} are the states")
    return {
        "name": _text(one["name"], f"{where}.name"),
        "init": one.get("init") is True,
        "state": one["state"],
        **_run(one, where),
        **{key: _text(one.get(key), f"{where}.{key}") for key in ("image", "image_id")},
        "last_state": None
        if one.get("last_state") is None
        else _run(_map(one["last_state"], f"{where}.last_state"), f"{where}.last_state"),
        "restart_count": _count(one.get("restart_count") or 0, f"{where}.restart_count", 2**31),
        "gpus": _texts(one.get("gpus"), f"{where}.gpus"),
    }


def _run(one: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What is written of one run of a container."""
    return {
        "reason": _text(one.get("reason"), f"{where}.reason"),
        "message": _text(one.get("message"), f"{where}.message", "\n\t"),
        "exit_code": _code(one.get("exit_code"), f"{where}.exit_code"),
        "signal": _code(one.get("signal"), f"{where}.signal"),
        "started_at": _time(one.get("started_at"), f"{where}.started_at"),
        "finished_at": _time(one.get("finished_at"), f"{where}.finished_at"),
        "cpu_s": _number(one.get("cpu_s"), f"{where}.cpu_s", "number of seconds", _MOST_SECONDS),
        **{
            key: None if one.get(key) is None else _count(one[key], f"{where}.{key}", _MOST_BYTES)
            for key in ("memory_bytes", "memory_peak_bytes")
        },
    }


def _map(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UntrustedFile(f"status.json: {where}: a map is needed")
    return value


def _text(value: Any, where: str, also: str = "") -> str | None:
    """A text without control characters, but those in `also`, and without broken Unicode.

    A terminal would obey control characters.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise UntrustedFile(f"status.json: {where}: a text is needed")
    return "".join(letter if letter.isprintable() or letter in also else " " for letter in value[:_TEXT])


def _texts(value: Any, where: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MOST:
        raise UntrustedFile(f"status.json: {where}: a list is needed")
    return [_text(one, where) or "" for one in value]


def _count(value: Any, where: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise UntrustedFile(f"status.json: {where}: a whole number is needed")
    return value


def _code(value: Any, where: str) -> int | None:
    return None if value is None else _count(value, where, 255)


def _time(value: Any, where: str) -> float | None:
    return _number(value, where, "time", _LATEST)


def _number(value: Any, where: str, kind: str, most: int) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UntrustedFile(f"status.json: {where}: a {kind} is needed")
    if not 0 <= value <= most:
        raise UntrustedFile(f"status.json: {where}: is no {kind}")
    return value
