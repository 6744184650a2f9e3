"""Two ways to a pod, with the same verbs.

`Cluster` is a user's way: the API server, then vk-provider, `serve`, Slurm, Apptainer. `Below` is for
what the lab's API server (1.20) cannot carry: vk-provider's own code makes the body of ``POST /create``
and the pod's status from the answer of ``/status``; everything from `serve` on is the same.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pytest

from slurmrest_adapter.domain.quantities import parse
from slurmrest_adapter.domain.resolve import Facts
from tests.fidelity.site import Site
from tests.fidelity.specs import Pod, ended, phase
from vk_provider import status
from vk_provider.kube import KubeClient
from vk_provider.logquery import LogOptions, logs_request
from vk_provider.logstream import open_logs
from vk_provider.payload import retrieved_pod_data
from vk_provider.pods import rfc3339_now
from vk_provider.sidecar import SidecarClient, address

PATIENCE_S = 90.0
_STEP_S = 0.15
_PLURALS = {"Pod": "pods", "ConfigMap": "configmaps", "Secret": "secrets", "Service": "services"}


class Way(ABC):
    """What a test does with pods. What it made is deleted after it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._made: list[str] = []

    @abstractmethod
    def create(self, pod: Pod, *objects: Pod) -> Pod:
        """Create the objects a pod refers to, then the pod; the pod as it is stored."""

    @abstractmethod
    def get(self, pod: Pod) -> Pod | None:
        """The pod now, None when it is gone."""

    @abstractmethod
    def log(self, pod: Pod, container: str | None = None, previous: bool = False) -> str:
        """A container's log, by default the first one's."""

    @abstractmethod
    def delete(self, pod: Pod) -> None:
        """Delete the pod with its grace period and wait until it is gone."""

    def until(self, pod: Pod, wanted: Callable[[Pod], bool], seconds: float = PATIENCE_S) -> Pod:
        """Look at the pod until it is as wanted; a pod that ended otherwise fails the test at once."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.get(pod)
            if found is not None and wanted(found):
                return found
            if found is None or ended(found) or time.monotonic() > deadline:
                shown = json.dumps((found or {}).get("status"), indent=1)
                pytest.fail(f"the pod did not become as wanted: {shown}\n{self.site.story()}")
            time.sleep(_STEP_S)

    def finished(self, pod: Pod, wanted: str = "Succeeded") -> Pod:
        """Wait for the pod's end, which must be the wanted phase."""
        return self.until(pod, lambda found: phase(found) == wanted)

    def output(self, pod: Pod, *objects: Pod, container: str | None = None) -> str:
        """Create the pod, wait for its success; a container's log."""
        made = self.create(pod, *objects)
        self.finished(made)
        return self.log(made, container)

    def logged(self, pod: Pod, text: str, container: str | None = None) -> None:
        """Wait until a container that runs has written exactly this."""
        self.until(pod, lambda _: self.log(pod, container) == text)

    def allocatable(self, resource: str) -> int:
        """What pods may have of the node: CPUs, or bytes of memory."""
        node = self.site.api.json("GET", f"/api/v1/nodes/{self.site.node}")
        return int(parse(node["status"]["allocatable"][resource], resource))

    def make(self, *objects: Pod) -> None:
        """Create objects."""
        for each in objects:
            path = _path(each)
            self.site.api.call("POST", path, each)
            self._made.append(f"{path}/{each['metadata']['name']}")

    def clean_up(self) -> None:
        """Delete what was made, without waiting for it."""
        for path in reversed(self._made):
            self.site.api.delete(path)


class Cluster(Way):
    """Through the API server."""

    def create(self, pod: Pod, *objects: Pod) -> Pod:
        chosen = {"nodeSelector": {"kubernetes.io/hostname": self.site.node}, **pod["spec"]}
        self.make(*objects, {**pod, "spec": chosen})
        found = self.get(pod)
        assert found is not None
        return found

    def get(self, pod: Pod) -> Pod | None:
        return self.site.api.find(_one(pod))

    def log(self, pod: Pod, container: str | None = None, previous: bool = False) -> str:
        query = {"container": container or pod["spec"]["containers"][0]["name"]}
        if previous:
            query["previous"] = "true"
        return self.site.api.call("GET", f"{_one(pod)}/log", **query).decode(errors="surrogateescape")

    def delete(self, pod: Pod) -> None:
        self.site.api.delete(_one(pod))
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.get(pod)) is not None:
            assert time.monotonic() < deadline, f"{found['status']}\n{self.site.story()}"
            time.sleep(_STEP_S)

    def patch(self, pod: Pod, change: dict[str, Any]) -> Pod:
        """Change the pod (a merge patch)."""
        return self.site.api.json("PATCH", _one(pod), change)

    def events(self, pod: Pod) -> list[dict[str, Any]]:
        """The pod's events."""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/events"
        selector = f"involvedObject.uid={pod['metadata']['uid']}"
        return list(self.site.api.json("GET", path, fieldSelector=selector)["items"])


class Below(Way):
    """Below the API server."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._where = address(f"unix://{site.socket}")
        self._sidecar = SidecarClient(self._where)
        self._pods: dict[str, Pod] = {}

    def create(self, pod: Pod, *objects: Pod) -> Pod:
        self.make(*objects)
        identity = {"uid": str(uuid.uuid4()), "creationTimestamp": rfc3339_now()}
        stored = {**pod, "metadata": {**pod["metadata"], **identity}}
        self._sidecar.create(retrieved_pod_data(KubeClient(self.site.api.config), stored, self._facts()))
        self._pods[identity["uid"]] = stored
        return stored

    def get(self, pod: Pod) -> Pod | None:
        stored = self._pods.get(pod["metadata"]["uid"])
        entry = None if stored is None else self._sidecar.status([stored]).get(stored["metadata"]["uid"])
        if stored is None or entry is None:
            return None
        here = self._facts().host_ips[0]
        now = status.mirrored(stored, entry, status.Place(rfc3339_now(), here, here))
        found = {**stored, "status": now}
        self._pods[pod["metadata"]["uid"]] = found
        return found

    def log(self, pod: Pod, container: str | None = None, previous: bool = False) -> str:
        name = container or pod["spec"]["containers"][0]["name"]
        return asyncio.run(self._read(pod, name, LogOptions(previous=previous))).decode(
            errors="surrogateescape"
        )

    async def _read(self, pod: Pod, container: str, options: LogOptions) -> bytes:
        request = logs_request(pod, container, options, rfc3339_now())
        async with open_logs(self._where, {}, request) as stream:
            assert stream.status == 200, await stream.words()
            return b"".join([piece async for piece in stream.body])

    def delete(self, pod: Pod) -> None:
        self._sidecar.delete(pod)
        deadline = time.monotonic() + PATIENCE_S
        uid = pod["metadata"]["uid"]
        while not status.has_ended(self._sidecar.status([pod]).get(uid)):
            assert time.monotonic() < deadline, self.site.story()
            time.sleep(_STEP_S)
        self._pods.pop(uid)

    def clean_up(self) -> None:
        for pod in self._pods.values():
            self._sidecar.delete(pod)
        self._sidecar.close()
        super().clean_up()

    def _facts(self) -> Facts:
        node = self.site.api.json("GET", f"/api/v1/nodes/{self.site.node}")
        (here,) = [a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"]
        return Facts(self.site.node, (here,), (here,), node["status"]["allocatable"])


def _path(thing: Pod) -> str:
    return f"/api/v1/namespaces/{thing['metadata']['namespace']}/{_PLURALS[thing['kind']]}"


def _one(pod: Pod) -> str:
    return f"{_path(pod)}/{pod['metadata']['name']}"
