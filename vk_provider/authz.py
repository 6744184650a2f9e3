"""Who may use the kubelet API.

A certificate of the cluster's CA says who somebody is, not what they may do: every user with a
client certificate has one. So, like a kubelet, the API server is asked by a SubjectAccessReview
whether this user may use the node's ``proxy``, ``stats``, ``metrics`` or ``log`` subresource.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from vk_provider.kube import KubeClient, path

REVIEWS = path("apis", "authorization.k8s.io", "v1", "subjectaccessreviews")
ALLOWED_S, DENIED_S = 300.0, 30.0
_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_MOST = 1000


class Authorizer:
    """Asks, and remembers for a while; safe for threads."""

    def __init__(self, api: KubeClient, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._node, self._clock = api, node, clock
        self._lock = threading.Lock()
        self._known: dict[tuple[Any, ...], tuple[bool, float]] = {}

    def allows(self, user: str, groups: tuple[str, ...], method: str, where: str) -> bool:
        """May this user do this here?

        Raises:
            KubeError: the API server could not be asked; then nobody may.
        """
        verb, subresource = _VERBS.get(method, "unknown"), _subresource(where)
        key, now = (user, groups, verb, subresource), self._clock()
        with self._lock:
            known = self._known.get(key)
            if known and known[1] > now:
                return known[0]
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": list(groups),
                "resourceAttributes": {
                    "verb": verb,
                    "version": "v1",
                    "resource": "nodes",
                    "subresource": subresource,
                    "name": self._node,
                },
            },
        }
        status = self._api.create(REVIEWS, review).get("status") or {}
        allowed = status.get("allowed") is True and status.get("denied") is not True
        with self._lock:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = (allowed, now + (ALLOWED_S if allowed else DENIED_S))
        return allowed


def identity(certificate: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """User and groups of a client certificate, as `ssl.SSLSocket.getpeercert` gives it."""
    pairs = [pair for line in certificate.get("subject") or () for pair in line]
    user = next((value for key, value in pairs if key == "commonName"), "")
    groups = tuple(value for key, value in pairs if key == "organizationName")
    return user, (*groups, "system:authenticated")


def _subresource(where: str) -> str:
    first = where.strip("/").split("/", 1)[0]
    return {"stats": "stats", "metrics": "metrics", "logs": "log"}.get(first, "proxy")
