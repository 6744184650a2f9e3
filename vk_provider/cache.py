"""The pods of this node as last heard, by UID: the same name with another UID is another pod."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

Pod = Mapping[str, Any]


def uid_of(pod: Pod) -> str:
    """The pod's UID, "" if it has none."""
    return str((pod.get("metadata") or {}).get("uid") or "")


def names_of(pod: Pod) -> tuple[str, str]:
    """Namespace and name."""
    metadata = pod.get("metadata") or {}
    return str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")


def is_deleting(pod: Pod) -> bool:
    """Has somebody asked for the pod's deletion?"""
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


class PodCache:
    """Safe for threads. The dictionaries are never changed in place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self.filled = threading.Event()

    def replace(self, pods: Iterable[Pod]) -> set[str]:
        """A whole list; answers the UIDs to look at: those there and those gone."""
        fresh = {uid_of(pod): pod for pod in pods if uid_of(pod)}
        with self._lock:
            touched = set(self._pods) | set(fresh)
            self._pods = fresh
        self.filled.set()
        return touched

    def put(self, pod: Pod) -> None:
        """An added or changed pod; one that is older than what is known is left aside."""
        with self._lock:
            known = self._pods.get(uid_of(pod))
            if known is None or _version(pod) >= _version(known):
                self._pods[uid_of(pod)] = pod

    def update(self, pod: Pod) -> None:
        """Like `put`, for the answer to our own write: a pod that has gone meanwhile stays gone."""
        with self._lock:
            known = self._pods.get(uid_of(pod))
            if known is not None and _version(pod) >= _version(known):
                self._pods[uid_of(pod)] = pod

    def drop(self, uid: str) -> None:
        """A pod that has gone."""
        with self._lock:
            self._pods.pop(uid, None)

    def get(self, uid: str) -> Pod | None:
        """One pod."""
        with self._lock:
            return self._pods.get(uid)

    def named(self, namespace: str, name: str) -> Pod | None:
        """One pod by its name."""
        with self._lock:
            return next((pod for pod in self._pods.values() if names_of(pod) == (namespace, name)), None)

    def all(self) -> list[Pod]:
        """All pods."""
        with self._lock:
            return list(self._pods.values())


def _version(pod: Pod) -> int:
    """The resource version as a number; API servers count upwards. 0 where it is something else."""
    version = str((pod.get("metadata") or {}).get("resourceVersion") or "")
    return int(version) if version.isdecimal() else 0
