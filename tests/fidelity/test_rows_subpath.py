"""Parts of volumes: subPath and subPathExpr (R124 to R132)."""

from __future__ import annotations

import base64

import pytest

from tests.fidelity.mounttest import content, mounttest
from tests.fidelity.specs import Images, Pod, config_map, container, pod, running, secret, unique, waiting
from tests.fidelity.ways import Cluster

AT = "/test-volume"
KEY = [{"key": "configmap-key", "path": "projected/configmap-key"}]
POD_NAME = [{"path": "downward/podname", "fieldRef": {"fieldPath": "metadata.name"}}]


def sources(name: str) -> dict[str, tuple[str, Pod, str, str]]:
    """Row → the part, the volume, where it is mounted, what it holds ("" for the pod's name)."""
    of_map: Pod = {"configMap": {"name": name}}
    projected: Pod = {"projected": {"sources": [{"configMap": {"name": name, "items": KEY}}]}}
    return {
        "R124": ("configmap-key", of_map, AT, "configmap-value"),
        "R125": ("configmap-key", of_map, "/etc/resolv.conf", "configmap-value"),
        "R126": ("secret-key", {"secret": {"secretName": name}}, AT, "secret-value"),
        "R127": ("downward/podname", {"downwardAPI": {"items": POD_NAME}}, AT, ""),
        "R128": ("projected/configmap-key", projected, AT, "configmap-value"),
    }


@pytest.mark.parametrize("row", sources(""))
def test_one_file_of_a_volume(cluster: Cluster, images: Images, row: str) -> None:
    name = unique("part")
    part, volume, at, value = sources(name)[row]
    made = pod(
        mounttest(
            images, f"--file_content={at}", volumeMounts=[{"name": "v", "mountPath": at, "subPath": part}]
        ),
        volumes=[{"name": "v", **volume}],
    )
    objects = [
        config_map(name, data={"configmap-key": "configmap-value"}),
        secret(name, data={"secret-key": base64.b64encode(b"secret-value").decode()}),
    ]
    lines = cluster.output(made, *objects).splitlines()
    assert lines == [content(at, value or made["metadata"]["name"])]


def expanded(images: Images, script: str, part: str, env: list[Pod], whole: str) -> Pod:
    """A pod that mounts a part of a volume named by variables, and at `whole` all of it."""
    return pod(
        container(
            images.shell,
            script,
            env=env,
            volumeMounts=[
                {"name": "workdir1", "mountPath": "/part", "subPathExpr": part},
                {"name": "workdir1", "mountPath": whole},
            ],
        ),
        volumes=[{"name": "workdir1", "emptyDir": {}}],
    )


def test_R129(cluster: Cluster, images: Images) -> None:
    env = [{"name": "POD_NAME", "value": "the-pods-name"}]
    script = "test -d /testcontainer/the-pods-name; echo $?"
    made = expanded(images, script, "$(POD_NAME)", env, "/testcontainer")
    assert cluster.output(made) == "0\n"


def test_R130(cluster: Cluster, images: Images) -> None:
    env: list[Pod] = [
        {"name": "POD_NAME", "value": "foo"},
        {"name": "ANNOTATION", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['mysubpath']"}}},
    ]
    # Upstream does both by exec.
    script = "touch /volume_mount/mypath/foo/test.log && test -f /part/test.log && echo there; sleep 1000"
    made = expanded(images, script, "$(ANNOTATION)/$(POD_NAME)", env, "/volume_mount")
    made["metadata"]["annotations"] = {"mysubpath": "mypath"}
    stored = cluster.create(made)
    cluster.until(stored, running)
    cluster.logged(stored, "there\n")
    cluster.patch(stored, {"metadata": {"annotations": {"mysubpath": "mynewpath"}}})
    cluster.until(stored, running)
    cluster.delete(stored)


# Upstream's own value for "backticks" is "..".
REFUSED = {"R131": "/tmp", "R132": "..", "R132 backticks": "`echo here`"}


@pytest.mark.parametrize("row", REFUSED)
def test_what_is_no_part_of_a_volume(cluster: Cluster, images: Images, row: str) -> None:
    env = [{"name": "POD_NAME", "value": REFUSED[row]}]
    made = cluster.create(expanded(images, "echo started", "$(POD_NAME)", env, "/all"))
    found = cluster.until(made, lambda found: waiting(found).get("reason") == "CreateContainerConfigError")
    assert "subPathExpr" in waiting(found)["message"]
    assert "JobID" not in found["metadata"].get("annotations", {})
    cluster.delete(made)
