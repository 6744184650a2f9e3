"""The Node object and its lease.

Two loops that do not wait for each other: the lease says "the provider lives" every few seconds,
the heartbeat asks the sidecar and writes the node's status.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from slurmrest_adapter import __version__
from vk_provider import kube
from vk_provider.health import Health, Verdict, resources
from vk_provider.kube import KubeClient, KubeError, path
from vk_provider.pods import rfc3339_now
from vk_provider.sidecar import SidecarClient, SidecarRefused, SidecarUnreachable

log = structlog.get_logger(__name__)

LEASE_S = 40
LEASES = path("apis", "coordination.k8s.io", "v1", "namespaces", "kube-node-lease", "leases")
# NodeRestriction keeps a node's own identity from setting this one.
ROLE = "kubernetes.io/role"
_FINE = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "Slurm allots memory"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "nothing is kept here"),
    "PIDPressure": ("KubeletHasSufficientPID", "nothing runs here"),
}


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What the node says of itself.

    Attributes:
        taint: key of the NoSchedule taint.
        address: where the API server reaches the kubelet API.
        arch: of the compute nodes, in Go's words.
    """

    name: str
    taint: str
    address: str
    port: int
    arch: str = "amd64"

    @property
    def labels(self) -> dict[str, str]:
        """The labels by which users select the node."""
        return {
            "type": "virtual-kubelet",
            "kubernetes.io/hostname": self.name,
            ROLE: "agent",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": self.arch,
        }


class NodeKeeper:
    """Registers the node and keeps it alive; registers it again when somebody deleted it."""

    def __init__(
        self,
        api: KubeClient,
        sidecar: SidecarClient,
        spec: NodeSpec,
        stop: threading.Event,
        health: Health | None = None,
        ping_s: float = 10.0,
        lease_s: float = 10.0,
        report_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._sidecar, self._spec, self._stop = api, sidecar, spec, stop
        self._health = health or Health()
        self._ping_s, self._lease_s, self._report_s, self._clock = ping_s, lease_s, report_s, clock
        self._where = path("api", "v1", "nodes", spec.name)
        self._resources: dict[str, str] = resources({}, {})
        self._ready: tuple[Verdict, str] | None = None  # and since when
        self._written: tuple[Any, float] | None = None
        self._taints: list[dict[str, str]] | None = None
        self._taints_refused = False
        self._role_refused = False
        self._uid = ""
        self._began = rfc3339_now()

    def allocatable(self) -> Mapping[str, str]:
        """The node's resources as Kubernetes quantities."""
        return self._resources

    def run_lease(self) -> None:
        """Renew the lease until `stop` is set."""
        while not self._stop.is_set():
            try:
                self.renew()
            except KubeError as error:
                log.warning("lease not renewed", error=str(error))
            self._stop.wait(self._lease_s)

    def run(self) -> None:
        """Ping and report until `stop` is set."""
        while not self._stop.is_set():
            try:
                self.beat()
            except KubeError as error:
                log.warning("node status not written", error=str(error))
            # Until the sidecar is up nobody gains from waiting long.
            self._stop.wait(self._ping_s if self._health.answered_once else min(1.0, self._ping_s))

    def beat(self) -> None:
        """One ping, and the node's status if it changed or its heartbeat is due."""
        taints = self._ask()
        now = self._clock()
        verdict = self._health.verdict(now)
        if self._ready is None or self._ready[0].ready != verdict.ready:
            log.info("node condition", ready=verdict.ready, reason=verdict.reason, message=verdict.message)
            since = rfc3339_now()
        else:
            since = self._ready[1]
        self._ready = (verdict, since)
        facts = (verdict, tuple(sorted(self._resources.items())))
        if self._written is None or self._written[0] != facts or now - self._written[1] >= self._report_s:
            self._report()
            self._written = (facts, now)
        if taints is not None and taints != self._taints:
            self._set_taints(taints)

    def _ask(self) -> list[dict[str, str]] | None:
        """Ping; answers the taints it names, None when it names none."""
        try:
            ping = self._sidecar.ping()
        except (SidecarUnreachable, SidecarRefused) as error:
            log.warning("ping failed", error=str(error))
            self._health.failed(str(error))
            return None
        self._health.answered(ping, self._clock())
        self._resources = resources(ping, self._resources)
        taints = ping.get("taints")
        return (
            [dict(each) for each in taints if isinstance(each, Mapping)] if isinstance(taints, list) else None
        )

    def status(self) -> dict[str, Any]:
        """The node's status as it is to be written."""
        verdict, since = self._ready or (self._health.verdict(self._clock()), rfc3339_now())
        now = rfc3339_now()
        conditions = [_condition("Ready", verdict.ready, verdict.reason, verdict.message, now, since)]
        for kind, (reason, message) in _FINE.items():
            conditions.append(_condition(kind, False, reason, message, now, self._began))
        return {
            "capacity": dict(self._resources),
            "allocatable": dict(self._resources),
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": self._spec.address},
                {"type": "Hostname", "address": self._spec.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._spec.port}},
            "nodeInfo": {
                "kubeletVersion": f"v{__version__}-slurmrest-adapter",
                "operatingSystem": "linux",
                "architecture": self._spec.arch,
                "osImage": "Slurm cluster",
                "kernelVersion": "",
                "containerRuntimeVersion": "slurm://",
                "kubeProxyVersion": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
            },
        }

    def _report(self) -> None:
        try:
            found = self._api.patch(f"{self._where}/status", {"status": self.status()}, kube.STRATEGIC)
        except kube.NotFound:
            self._register()
            found = self._api.patch(f"{self._where}/status", {"status": self.status()}, kube.STRATEGIC)
        uid = str((found.get("metadata") or {}).get("uid") or "")
        if uid != self._uid:
            self._adopt(found)
            self._uid = uid

    def _register(self) -> None:
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self._spec.name, "labels": self._spec.labels},
            "spec": {"taints": [{"key": self._spec.taint, "effect": "NoSchedule"}]},
            "status": self.status(),
        }
        try:
            self._api.create(path("api", "v1", "nodes"), body)
        except kube.Forbidden as error:
            log.info(
                "this identity may not set every label; leaving one out", label=ROLE, error=error.message
            )
            self._role_refused = True
            body["metadata"]["labels"].pop(ROLE)
            self._api.create(path("api", "v1", "nodes"), body)
        except kube.Conflict:
            return
        log.info("node registered", node=self._spec.name)

    def _adopt(self, found: Mapping[str, Any]) -> None:
        """Bring labels and our taint of a node that was there before in order."""
        labels = (found.get("metadata") or {}).get("labels") or {}
        wanted = {key: value for key, value in self._spec.labels.items() if labels.get(key) != value}
        for few in ({ROLE}, wanted.keys() - {ROLE}):  # a node's identity may set all but the role
            some = {key: value for key, value in wanted.items() if key in few}
            if some and not (few == {ROLE} and self._role_refused):
                self._try("labels", {"metadata": {"labels": some}})
        taints = (found.get("spec") or {}).get("taints") or []
        if not any(each.get("key") == self._spec.taint for each in taints):
            self._set_taints(self._taints or [])

    def _set_taints(self, taints: list[dict[str, str]]) -> None:
        """Ours, those of the ping, and whatever Kubernetes itself has put there."""
        found = self._api.get(self._where)
        there = (found.get("spec") or {}).get("taints") or []
        kept = [each for each in there if str(each.get("key", "")).startswith("node.kubernetes.io/")]
        ours = [{"key": self._spec.taint, "effect": "NoSchedule"}]
        told = [each for each in taints if each.get("key") and each["key"] != self._spec.taint]
        version = (found.get("metadata") or {}).get("resourceVersion")
        wanted = [*kept, *ours, *told]
        body = {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}}
        if wanted == there or self._try("taints", body):
            self._taints = taints

    def _try(self, what: str, body: Mapping[str, Any]) -> bool:
        try:
            self._api.patch(self._where, body)
        except kube.Forbidden as error:
            if not (what == "taints" and self._taints_refused):
                log.warning(f"this identity may not change the node's {what}", error=error.message)
            self._taints_refused = self._taints_refused or what == "taints"
            return what == "taints"  # a node's identity never may; asking at each ping helps nobody
        except kube.Conflict:
            return False
        return True

    def renew(self) -> None:
        """Renew the lease, or make it."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._spec.name, "leaseDurationSeconds": LEASE_S, "renewTime": now}
        where = f"{LEASES}{path(self._spec.name)}"
        try:
            self._api.patch(where, {"spec": spec})
        except kube.NotFound:
            body: dict[str, Any] = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._spec.name, "namespace": "kube-node-lease"},
                "spec": spec,
            }
            if self._uid:  # the lease goes when the node goes
                owner = {"apiVersion": "v1", "kind": "Node", "name": self._spec.name, "uid": self._uid}
                body["metadata"]["ownerReferences"] = [owner]
            try:
                self._api.create(LEASES, body)
            except kube.Conflict:
                self._api.patch(where, {"spec": spec})


def _condition(kind: str, value: bool, reason: str, message: str, now: str, since: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if value else "False",
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }
