"""List and watch of this node's pods, through whatever the connection does.

A list gives the whole picture and a version; a watch continues from there. When the API server has
forgotten that version (410) everything is listed again; when the connection breaks the watch goes
on from the last version heard. Bookmarks keep that version fresh on a quiet node.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import structlog

from vk_provider.cache import PodCache, uid_of
from vk_provider.kube import Gone, KubeClient, KubeError

log = structlog.get_logger(__name__)

WATCH_S = 240  # the API server ends the watch after this; then it goes on from where it was
PAGE = 500


class PodWatch:
    """Keeps a cache in step with the API server and tells which pods to look at."""

    def __init__(
        self,
        api: KubeClient,
        node: str,
        cache: PodCache,
        changed: Callable[[str], None],
        stop: threading.Event,
        backoff_s: tuple[float, float] = (0.5, 30.0),
    ) -> None:
        self._api, self._node, self._cache, self._changed, self._stop = api, node, cache, changed, stop
        self._first_s, self._most_s = backoff_s
        self._version = ""

    def run(self) -> None:
        """Until `stop` is set; every failure is survived with a back-off."""
        wait = self._first_s
        while not self._stop.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
                wait = self._first_s
            except Gone:
                log.info("the watch's version is too old, listing again")
                self._version = ""
                self._stop.wait(0.1)
            except KubeError as error:
                log.warning("watch of pods interrupted", error=str(error), again_in_s=round(wait, 1))
                self._stop.wait(wait * random.uniform(0.8, 1.2))  # noqa: S311
                wait = min(self._most_s, wait * 2)

    def _list(self) -> None:
        selector = f"spec.nodeName={self._node}"
        pods: list[dict[str, Any]] = []
        query = {"fieldSelector": selector, "limit": str(PAGE)}
        while True:
            page = self._api.get("/api/v1/pods", **query)
            pods += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                break
            query["continue"] = str(metadata["continue"])
        for uid in self._cache.replace(pods):
            self._changed(uid)
        self._version = str(metadata.get("resourceVersion") or "")
        log.info("pods listed", pods=len(pods))

    def _watch(self) -> None:
        query = {
            "fieldSelector": f"spec.nodeName={self._node}",
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(WATCH_S),
        }
        with self._api.watch("/api/v1/pods", query, WATCH_S + 30) as events:
            for event in events:
                if self._stop.is_set():
                    return
                self._take(str(event.get("type")), event["object"])

    def _take(self, kind: str, pod: dict[str, Any]) -> None:
        uid = uid_of(pod)
        if kind in ("ADDED", "MODIFIED"):
            self._cache.put(pod)
        elif kind == "DELETED":
            self._cache.drop(uid)
        if uid and kind != "BOOKMARK":
            self._changed(uid)
        self._version = str((pod.get("metadata") or {}).get("resourceVersion") or self._version)
