"""What a pod says of itself, as files of a projected volume (R086 to R094)."""

from __future__ import annotations

from typing import Any

import pytest

from slurmrest_adapter.domain.quantities import parse_amount
from tests.fidelity.mounttest import content, mode, mounttest
from tests.fidelity.site import Site
from tests.fidelity.specs import Images, Pod, pod
from tests.fidelity.ways import Cluster

AT = "/etc/podinfo"
FIELDS = {
    "cpu_limit": "limits.cpu",
    "cpu_request": "requests.cpu",
    "memory_limit": "limits.memory",
    "memory_request": "requests.memory",
}
RESOURCES = {
    "requests": {"cpu": "250m", "memory": "32Mi"},
    "limits": {"cpu": "1250m", "memory": "64Mi"},
}


def informed(images: Images, flag: str, path: str, default: int | None = None, **container: Any) -> Pod:
    """A pod that looks at one of its files of itself; a mode in `item_mode` is the pod name's own."""
    item_mode = container.pop("item_mode", None)
    items: list[Pod] = [{"path": "podname", "fieldRef": {"fieldPath": "metadata.name"}}]
    if item_mode is not None:
        items[0]["mode"] = item_mode
    for name, resource in FIELDS.items():
        items.append({"path": name, "resourceFieldRef": {"containerName": "main", "resource": resource}})
    projected: Pod = {"sources": [{"downwardAPI": {"items": items}}]}
    if default is not None:
        projected["defaultMode"] = default
    return pod(
        mounttest(
            images, f"--{flag}={path}", volumeMounts=[{"name": "podinfo", "mountPath": AT}], **container
        ),
        volumes=[{"name": "podinfo", "projected": projected}],
    )


NUMBERS = {
    "R086": ("cpu_limit", "2"),  # whole CPUs, rounded up
    "R087": ("cpu_request", "1"),
    "R088": ("memory_limit", "67108864"),
    "R089": ("memory_request", "33554432"),
}


@pytest.mark.parametrize("row", NUMBERS)
def test_its_resources(cluster: Cluster, images: Images, row: str) -> None:
    name, number = NUMBERS[row]
    made = informed(images, "file_content", f"{AT}/{name}", resources=RESOURCES)
    assert cluster.output(made).splitlines() == [content(f"{AT}/{name}", number)]


ALLOCATABLE = {"R090": ("cpu_limit", "cpu"), "R091": ("memory_limit", "memory")}


@pytest.mark.parametrize("row", ALLOCATABLE)
def test_no_limit_is_the_nodes(cluster: Cluster, images: Images, virtual_node: Site, row: str) -> None:
    name, resource = ALLOCATABLE[row]
    (line,) = cluster.output(informed(images, "file_content", f"{AT}/{name}")).splitlines()
    node = virtual_node.api.json("GET", f"/api/v1/nodes/{virtual_node.node}")
    amount = parse_amount(node["status"]["allocatable"][resource], resource)
    assert amount > 0
    assert line == content(f"{AT}/{name}", str(amount))


def test_R092(cluster: Cluster, images: Images) -> None:
    made = informed(images, "file_content", f"{AT}/podname")
    assert cluster.output(made).splitlines() == [content(f"{AT}/podname", made["metadata"]["name"])]


def test_R093(cluster: Cluster, images: Images) -> None:
    made = informed(images, "file_mode", f"{AT}/podname", 0o400)
    assert cluster.output(made).splitlines() == [mode(f"{AT}/podname", "-r--------")]


def test_R094(cluster: Cluster, images: Images) -> None:
    made = informed(images, "file_mode", f"{AT}/podname", item_mode=0o400)
    assert cluster.output(made).splitlines() == [mode(f"{AT}/podname", "-r--------")]
