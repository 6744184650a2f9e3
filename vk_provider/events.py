"""Events on pods: what `kubectl describe` shows. Best effort, never in the way of the work."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import structlog

from vk_provider.cache import Pod, names_of, uid_of
from vk_provider.kube import Conflict, KubeClient, KubeError, NotFound, path

log = structlog.get_logger(__name__)

_MOST_KNOWN = 10_000
_MOST_WORDS = 1000


class EventRecorder:
    """Writes one event object for each thing said about a pod; saying it again counts it up.

    Args:
        api: the API server.
        node: name of the node, the events' source.
        now: RFC 3339 time in whole seconds.
    """

    def __init__(self, api: KubeClient, node: str, now: Callable[[], str]) -> None:
        self._api, self._node, self._now = api, node, now
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, pod: Pod, kind: str, reason: str, message: str, one: bool = False) -> None:
        """Say something about a pod.

        Args:
            pod: the raw pod.
            kind: Normal or Warning.
            reason: one CamelCase word.
            message: for people.
            one: keep one event for this reason, whose message is the latest one.
        """
        namespace, name = names_of(pod)
        key = "\0".join((uid_of(pod), reason, "" if one else message))
        event = f"{name[:230]}.{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        with self._lock:
            count = self._counts.get(key, 0) + 1
            self._counts[key] = count
            self._counts.move_to_end(key)
            while len(self._counts) > _MOST_KNOWN:
                self._counts.popitem(last=False)
        now = self._now()
        news: dict[str, Any] = {"message": message[:_MOST_WORDS], "lastTimestamp": now}
        where = path("api", "v1", "namespaces", namespace, "events")
        try:
            if count > 1 and self._again(f"{where}/{event}", {**news, "count": count}):
                return
            try:
                self._api.create(where, self._body(pod, event, kind, reason, {**news, "count": count}))
            except Conflict:  # said before this process started
                self._again(f"{where}/{event}", news)
        except KubeError as error:
            log.warning("event not written", pod=f"{namespace}/{name}", reason=reason, error=str(error))

    def _again(self, where: str, news: dict[str, Any]) -> bool:
        try:
            self._api.patch(where, news)
        except NotFound:  # events live for an hour
            return False
        return True

    def _body(self, pod: Pod, event: str, kind: str, reason: str, news: dict[str, Any]) -> dict[str, Any]:
        namespace, name = names_of(pod)
        involved = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": name,
            "uid": uid_of(pod),
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": event},
            "involvedObject": involved,
            "type": kind,
            "reason": reason,
            "source": {"component": "vk-provider", "host": self._node},
            "firstTimestamp": news["lastTimestamp"],
            **news,
        }
