"""The node: its registration, its Ready rules, its resources."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import kubernetes.client
import pytest

from tests.fakes.kube_api import ApiError, FakeKubeApi
from tests.fakes.sidecar import FakeSidecar
from tests.unit.vk_provider.conftest import NODE, World, until
from vk_provider.health import Health, resources
from vk_provider.kube import KubeClient
from vk_provider.node import NodeKeeper, NodeSpec
from vk_provider.sidecar import SidecarClient, address

PATH = f"/api/v1/nodes/{NODE}"
TAINT = "virtual-node.interlink/no-schedule"


def keeper(api: FakeKubeApi, sidecar: FakeSidecar, clock: list[float]) -> NodeKeeper:
    config = kubernetes.client.Configuration(host=api.url)
    spec = NodeSpec(NODE, TAINT, "127.0.0.1", 10250)
    client = SidecarClient(address(sidecar.listen))
    return NodeKeeper(KubeClient(config), client, spec, threading.Event(), Health(60), clock=lambda: clock[0])


def ready(api: FakeKubeApi) -> dict[str, Any]:
    node = api.get(PATH)
    assert node is not None
    return next(dict(c) for c in node["status"]["conditions"] if c["type"] == "Ready")


def test_the_node_is_registered_with_what_the_sidecar_has(world: World) -> None:
    world.start()
    node = until(lambda: world.api.get(PATH))
    assert node["metadata"]["labels"] == {
        "type": "virtual-kubelet",
        "kubernetes.io/hostname": NODE,
        "kubernetes.io/role": "agent",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    assert node["spec"]["taints"] == [{"key": TAINT, "effect": "NoSchedule"}]
    wanted = {
        "cpu": "64",
        "memory": "256000Mi",
        "pods": "1000",
        "nvidia.com/gpu": "8",
        "ephemeral-storage": "1Ti",
    }
    assert node["status"]["capacity"] == node["status"]["allocatable"] == wanted
    assert ready(world.api)["status"] == "True"
    assert node["status"]["addresses"][0] == {"type": "InternalIP", "address": "127.0.0.1"}
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
    first = until(lambda: world.api.get(lease))["spec"]["renewTime"]
    until(lambda: (world.api.get(lease) or {})["spec"]["renewTime"] > first)


def test_a_node_that_was_deleted_is_registered_again(world: World) -> None:
    world.start()
    first = until(lambda: world.api.get(PATH))["metadata"]["uid"]
    world.api.delete(PATH, {})
    world.sidecar.resources["cpu"] = "65"  # at the next report
    until(lambda: (world.api.get(PATH) or {}).get("metadata", {}).get("uid", first) != first)


def test_a_nodes_own_identity_may_not_set_the_role() -> None:
    def restriction(method: str, path: str) -> None:
        body = api.requests[-1][2]
        labels = (body.get("metadata") or {}).get("labels") or {}
        if method in ("POST", "PATCH") and "/nodes" in path and "kubernetes.io/role" in labels:
            raise ApiError(403, "Forbidden", "is not allowed to set: kubernetes.io/role")

    with FakeKubeApi() as api, FakeSidecar() as sidecar:
        api.rules.append(restriction)
        keeper(api, sidecar, [0.0]).beat()
        node = api.get(PATH)
        assert node is not None
        assert "kubernetes.io/role" not in node["metadata"]["labels"]
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NODE


def test_a_node_that_was_there_gets_its_labels_and_taint() -> None:
    with FakeKubeApi() as api, FakeSidecar() as sidecar:
        unreachable = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
        api.put(PATH, {"metadata": {"labels": {"mine": "1"}}, "spec": {"taints": [unreachable]}})
        keeper(api, sidecar, [0.0]).beat()
        node = api.get(PATH)
        assert node is not None
        assert node["metadata"]["labels"]["mine"] == "1"
        assert node["metadata"]["labels"]["type"] == "virtual-kubelet"
        assert node["spec"]["taints"] == [unreachable, {"key": TAINT, "effect": "NoSchedule"}]


def test_taints_of_the_ping_come_and_go() -> None:
    with FakeKubeApi() as api, FakeSidecar() as sidecar:
        nodes = keeper(api, sidecar, [0.0])
        sidecar.taints = [{"key": "slurm/maintenance", "value": "1", "effect": "NoSchedule"}]
        nodes.beat()
        assert len((api.get(PATH) or {})["spec"]["taints"]) == 2
        sidecar.taints = []
        nodes.beat()
        assert (api.get(PATH) or {})["spec"]["taints"] == [{"key": TAINT, "effect": "NoSchedule"}]


def test_ready_through_outages() -> None:
    clock = [100.0]
    with FakeKubeApi() as api, FakeSidecar() as sidecar:
        nodes = keeper(api, sidecar, clock)
        sidecar.down = True
        nodes.beat()
        assert ready(api)["status"] == "False", "nothing is known yet"
        sidecar.down = False
        nodes.beat()
        since = ready(api)
        assert since["status"] == "True"
        sidecar.slurm_connected = False
        clock[0] += 500
        nodes.beat()
        assert ready(api)["status"] == "True", "Slurm's maintenance is not the node's"
        assert ready(api)["reason"] == "SlurmUnreachable"
        assert ready(api)["lastTransitionTime"] == since["lastTransitionTime"]
        sidecar.slurm_connected, sidecar.down = True, True
        clock[0] += 30
        nodes.beat()
        assert ready(api)["status"] == "True", "one ping says nothing"
        clock[0] += 61
        nodes.beat()
        assert ready(api)["status"] == "False"
        assert "has not answered for more than 60 s" in ready(api)["message"]
        sidecar.down = False
        nodes.beat()
        assert ready(api)["status"] == "True"


def test_resources_left_out_stay_and_lost_accelerators_are_zero() -> None:
    before = resources(
        {"resources": {"cpu": "4", "accelerators": [{"resourceType": "g.c/gpu", "available": "2"}]}}, {}
    )
    assert before == {"cpu": "4", "g.c/gpu": "2", "ephemeral-storage": "1Ti"}
    assert resources({"status": "ok"}, before) == before
    assert resources({"resources": {"memory": "1Gi"}}, before) == {**before, "memory": "1Gi"}
    assert resources({"resources": {"accelerators": []}}, before) == {**before, "g.c/gpu": "0"}
    assert resources({"resources": {"ephemeral-storage": "5Gi"}}, before)["ephemeral-storage"] == "5Gi"


def test_a_token_is_brought_over_tcp(world: World) -> None:
    token = world.directory / "token"
    token.write_text("s3cret\n")
    with FakeSidecar(token="s3cret") as sidecar:
        client = SidecarClient(address(sidecar.listen), token)
        assert client.ping()["status"] == "ok"
        token.write_text("wrong")
        with pytest.raises(Exception, match="401"):
            client.ping()


def test_slow_pings_do_not_hold_up_the_lease(world: World) -> None:
    world.options = replace(world.options, ping_s=0.01)
    world.start()
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
    until(lambda: world.api.get(lease))
    world.sidecar.slow_s = 5
    first = (world.api.get(lease) or {})["spec"]["renewTime"]
    until(lambda: (world.api.get(lease) or {})["spec"]["renewTime"] > first)
    world.sidecar.slow_s = 0
