"""A pod's ``activeDeadlineSeconds`` where nobody else keeps it.

The job's runner counts the deadline that the pod had when it was submitted. Kubernetes lets users
set one, or a shorter one, on a pod that runs already; that one is kept here. Both count from the
job's start: a pod is not active while its job waits in the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from vk_provider.cache import Pod
from vk_provider.containers import time_of

REASON = "DeadlineExceeded"
MESSAGE = "Pod was active on the node longer than the specified deadline"  # the kubelet's words


def seconds_left(pod: Pod, entry: Mapping[str, Any], now: float) -> float | None:
    """Seconds until the pod's deadline, 0 or less when it is over; None if there is none to keep.

    Args:
        pod: the raw pod as it is now.
        entry: the sidecar's answer about it, of a job that has not ended. ``activeDeadlineSeconds`` in
            it is the deadline that the job itself keeps.
        now: POSIX seconds.
    """
    deadline = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    if not isinstance(deadline, int) or entry.get("activeDeadlineSeconds") == deadline:
        return None
    known = pod.get("status") or {}
    # A plugin that does not tell the job's start: what the pod knows is close to it once it runs.
    begun = time_of(entry.get("startTime")) or (known.get("phase") == "Running" and known.get("startTime"))
    if not begun:
        return None
    return datetime.fromisoformat(str(begun)).timestamp() + deadline - now
