"""Pods for tests, as YAML's plain values."""

from __future__ import annotations

from typing import Any

UID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
OTHER_UID = "ffffffff-4e5f-6071-8293-a4b5c6d7e8f9"


def container(name: str = "main", **fields: Any) -> dict[str, Any]:
    """A container of an image on a local registry."""
    return {"name": name, "image": "127.0.0.1:5000/lab/busybox:1", **fields}


def pod(*containers: dict[str, Any], uid: str = UID, name: str = "train", **spec: Any) -> dict[str, Any]:
    """A pod of the namespace physics; one plain container when none is given."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "physics", "uid": uid},
        "spec": {"restartPolicy": "Never", "containers": list(containers) or [container()], **spec},
    }
