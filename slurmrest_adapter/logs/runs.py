"""Which of a container's runs is meant: each has a log of its own, and the last two are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def newest(runner: Mapping[str, Any], container: str) -> int:
    """The number of a container's newest run, from 0, as the runner's status has it."""
    return int(_record(runner, container).get("restart_count") or 0)


def previous(runner: Mapping[str, Any], container: str) -> int:
    """The number of the run that ended last, where another follows it; -1 when there is none.

    While a container waits for its next start, that is its newest run.
    """
    record = _record(runner, container)
    waits = record.get("state") == "waiting" and record.get("last_state")
    return newest(runner, container) - (0 if waits else 1)


def is_over(status: Mapping[str, Any], run: int) -> bool:
    """Has this run ended, by a v1.ContainerStatus?"""
    waits = "waiting" in status["state"] and bool(status.get("lastState"))
    return "terminated" in status["state"] or status["restartCount"] > run or waits


def _record(runner: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    for record in runner.get("containers", ()):
        if record["name"] == container:
            return dict(record)
    return {}
