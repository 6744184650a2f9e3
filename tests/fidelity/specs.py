"""Pods and what they refer to, as the rows need them; and reading a pod's status."""

from __future__ import annotations

import uuid
from typing import Any

Pod = dict[str, Any]  # any object of Kubernetes, raw
NAMESPACE = "physics"


class Images:
    """The lab's images."""

    def __init__(self, registry: str) -> None:
        self.shell = f"{registry}/lab/busybox:1"  # CMD sh
        self.python = f"{registry}/lab/python:3"
        self.entry = f"{registry}/lab/entry:1"  # ENTRYPOINT, CMD, ENV, WORKDIR; says how it was called
        self.missing = f"{registry}/lab/none-such:1"


def container(image: str, script: str | None = None, name: str = "main", **fields: Any) -> Pod:
    """A container that runs a shell script, or with `script` None what its fields say."""
    given = {} if script is None else {"command": ["sh", "-c", script]}
    return {"name": name, "image": image, **given, **fields}


def pod(*containers: Pod, namespace: str = NAMESPACE, labels: Any = None, **spec: Any) -> Pod:
    """A pod; `spec` has what else it has, by Kubernetes' names."""
    metadata: Pod = {"name": unique("pod"), "namespace": namespace}
    if labels:
        metadata["labels"] = labels
    rules = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "tolerations": [{"operator": "Exists"}],
    }
    spec = {**rules, **spec, "containers": list(containers)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def config_map(name: str, namespace: str = NAMESPACE, **fields: Any) -> Pod:
    """A ConfigMap: ``data``, ``binaryData``."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        **fields,
    }


def secret(name: str, namespace: str = NAMESPACE, **fields: Any) -> Pod:
    """A Secret: ``data`` (base64), ``stringData``."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        **fields,
    }


def unique(word: str) -> str:
    """A name that no other test has."""
    return f"{word}-{uuid.uuid4().hex[:10]}"


def phase(found: Pod) -> str:
    """The pod's phase."""
    return str(found["status"].get("phase"))


def ended(found: Pod) -> bool:
    """Whether the pod came to its end."""
    return phase(found) in ("Succeeded", "Failed")


def status_of(found: Pod, name: str = "main") -> dict[str, Any]:
    """A container's status, empty when there is none."""
    known = found["status"]
    both = [*known.get("initContainerStatuses", ()), *known.get("containerStatuses", ())]
    return next((one for one in both if one["name"] == name), {})


def terminated(found: Pod, name: str = "main") -> dict[str, Any]:
    """How a container ended, empty when it has not."""
    return dict(status_of(found, name).get("state", {}).get("terminated") or {})


def waiting(found: Pod, name: str = "main") -> dict[str, Any]:
    """Why a container waits, empty when it does not."""
    return dict(status_of(found, name).get("state", {}).get("waiting") or {})


def running(found: Pod, name: str = "main") -> bool:
    """Whether a container runs."""
    return "running" in status_of(found, name).get("state", {})


def restarts(found: Pod, name: str = "main") -> int:
    """A container's restart count."""
    return int(status_of(found, name).get("restartCount") or 0)


def condition(found: Pod, kind: str) -> str:
    """A pod condition's status: True, False, Unknown; "" when there is none."""
    known = found["status"].get("conditions") or ()
    return next((str(one["status"]) for one in known if one["type"] == kind), "")
