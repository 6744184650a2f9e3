"""Downward API volumes (R024 to R032)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fidelity.specs import Images, Pod, container, pod
from tests.fidelity.ways import Cluster

MIB = 2**20
ASKED = {"requests": {"cpu": "250m", "memory": "32Mi"}, "limits": {"cpu": "1250m", "memory": "64Mi"}}
MOUNT = {"name": "podinfo", "mountPath": "/etc/podinfo"}
NAME = {"path": "podname", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
# What stands in the file, and its mode as the file has it that a link may lead to.
LOOK = "cat /etc/podinfo/{0}; echo; stat -L -c %a /etc/podinfo/{0}"


def amount(resource: str) -> dict[str, Any]:
    """The item of a file with an amount of the container `main`; a CPU counts in whole ones."""
    return {"path": "amount", "resourceFieldRef": {"containerName": "main", "resource": resource}}


def with_files(images: Images, script: str, item: dict[str, Any], **fields: Any) -> Pod:
    """A pod that has the item's file; `defaultMode` is the volume's, other fields the container's."""
    mode = {key: fields.pop(key) for key in ("defaultMode",) if key in fields}
    volume = {"name": "podinfo", "downwardAPI": {"items": [item], **mode}}
    return pod(container(images.shell, script, volumeMounts=[MOUNT], **fields), volumes=[volume])


def look(cluster: Cluster, images: Images, item: dict[str, Any], **fields: Any) -> list[str]:
    """Content and mode of the item's file."""
    made = with_files(images, LOOK.format(item["path"]), item, **fields)
    return cluster.output(made).splitlines()


@pytest.mark.parametrize(
    ("row", "resource", "value"),
    [
        ("R024", "limits.cpu", 2),
        ("R025", "requests.cpu", 1),
        ("R026", "limits.memory", 64 * MIB),
        ("R027", "requests.memory", 32 * MIB),
    ],
)
def test_amount(cluster: Cluster, images: Images, row: str, resource: str, value: int) -> None:
    assert look(cluster, images, amount(resource), resources=ASKED) == [str(value), "644"]


@pytest.mark.parametrize(("row", "resource"), [("R028", "cpu"), ("R029", "memory")])
def test_the_limit_is_what_the_node_has(cluster: Cluster, images: Images, row: str, resource: str) -> None:
    offered = cluster.allocatable(resource)
    assert offered > 0
    assert look(cluster, images, amount(f"limits.{resource}")) == [str(offered), "644"]


def test_R030(cluster: Cluster, images: Images) -> None:
    made = cluster.create(with_files(images, LOOK.format("podname"), NAME))
    cluster.finished(made)
    assert cluster.log(made).splitlines() == [made["metadata"]["name"], "644"]


def test_R031(cluster: Cluster, images: Images) -> None:
    assert look(cluster, images, NAME, defaultMode=0o400)[1] == "400"


def test_R032(cluster: Cluster, images: Images) -> None:
    assert look(cluster, images, {**NAME, "mode": 0o400}, defaultMode=0o640)[1] == "400"
