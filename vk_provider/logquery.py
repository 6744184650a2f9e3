"""Log options: of `kubectl logs`, as the API server passes them on, and of interLink's wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slurmrest_adapter.domain.errors import Invalid
from vk_provider.cache import Pod, names_of, uid_of

_WORDS = {"true": True, "1": True, "false": False, "0": False, "": False}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """v1.PodLogOptions; None where nothing was asked."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    since_time: str | None = None


def log_options(query: Mapping[str, Sequence[str]]) -> LogOptions:
    """Parse a query string's values, checking what Kubernetes checks.

    Raises:
        Invalid: a value of the wrong kind or out of range, naming the option.
    """
    options = LogOptions(
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        timestamps=_flag(query, "timestamps"),
        tail_lines=_number(query, "tailLines", 0),
        limit_bytes=_number(query, "limitBytes", 1),
        since_seconds=_number(query, "sinceSeconds", 1),
        since_time=_time(query, "sinceTime"),
    )
    if options.since_seconds is not None and options.since_time is not None:
        raise Invalid("sinceTime", "at most one of sinceTime and sinceSeconds may be given")
    return options


def logs_request(pod: Pod, container: str, options: LogOptions, now: str) -> dict[str, Any]:
    """The body of ``GET /getLogs``.

    On the wire a tail of 0 means "everything", because Go writes 0 for what was not asked. So
    ``tailLines=0`` with follow becomes "what comes from now on"; without follow the caller
    answers it without asking.

    Args:
        pod: the raw pod.
        container: the container's name.
        options: what was asked.
        now: RFC 3339.
    """
    namespace, name = names_of(pod)
    wanted: dict[str, Any] = {
        "Follow": options.follow,
        "Previous": options.previous,
        "Timestamps": options.timestamps,
    }
    if options.tail_lines:
        wanted["Tail"] = options.tail_lines
    if options.limit_bytes is not None:
        wanted["Bytes"] = options.limit_bytes
    if options.since_seconds is not None:
        wanted["SinceSeconds"] = options.since_seconds
    since = now if options.tail_lines == 0 else options.since_time
    if since is not None:
        wanted["SinceTime"] = since
    return {
        "Namespace": namespace,
        "PodUID": uid_of(pod),
        "PodName": name,
        "ContainerName": container,
        "Opts": wanted,
    }


def _one(query: Mapping[str, Sequence[str]], name: str) -> str | None:
    values = query.get(name)
    return values[0] if values else None


def _flag(query: Mapping[str, Sequence[str]], name: str) -> bool:
    value = _one(query, name)
    if value is None:
        return False
    if value.lower() not in _WORDS:
        raise Invalid(name, "true or false is needed")
    return _WORDS[value.lower()]


def _number(query: Mapping[str, Sequence[str]], name: str, least: int) -> int | None:
    value = _one(query, name)
    if not value:
        return None
    if not value.isascii() or not value.isdecimal() or not least <= int(value) < 2**63:
        raise Invalid(name, f"a whole number, {least} or more, is needed")
    return int(value)


def _time(query: Mapping[str, Sequence[str]], name: str) -> str | None:
    value = _one(query, name)
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Invalid(name, "an RFC 3339 time is needed")
    return value
