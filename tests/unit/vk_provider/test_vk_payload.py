"""What is handed to the sidecar: references, volumes, service variables."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import kubernetes.client
import pytest

from slurmrest_adapter.domain.errors import Unsupported
from slurmrest_adapter.domain.resolve import Facts
from tests.fakes.kube_api import FakeKubeApi
from tests.unit.vk_provider.conftest import pod
from vk_provider.goquote import quoted
from vk_provider.kube import Forbidden, KubeClient
from vk_provider.payload import retrieved_pod_data
from vk_provider.references import NotYet
from vk_provider.services import service_variables

NS = "/api/v1/namespaces/ns"
FACTS = Facts("vnode", ("10.0.0.1",), ("10.0.0.2",), {"cpu": "64", "memory": "1Gi"})


@pytest.fixture
def api() -> Iterator[FakeKubeApi]:
    with FakeKubeApi() as made:
        made.put(f"{NS}/configmaps/cm", {"data": {"a": "1", "b": "2"}, "binaryData": {"x": "/w=="}})
        made.put(f"{NS}/secrets/sec", {"data": {"pw": base64.b64encode(b"pa$$").decode(), "x": "/w=="}})
        made.put(f"{NS}/serviceaccounts/default", {})
        yield made


def sent(api: FakeKubeApi, volumes: list[Any], **container: Any) -> dict[str, Any]:
    """The payload for a pod whose one container mounts all volumes."""
    mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in volumes]
    body = pod(
        containers=[{"name": "c", "image": "i", "volumeMounts": mounts, **container}],
        initContainers=[{"name": "i", "image": "i"}],
        volumes=volumes,
    )
    labels = {"b": 'q"\n', "a": "ü"}
    body["metadata"] |= {"uid": "u", "labels": labels, "managedFields": [{"manager": "kubectl"}]}
    client = KubeClient(kubernetes.client.Configuration(host=api.url))
    return retrieved_pod_data(client, body, FACTS)


def projected(*sources: dict[str, Any]) -> list[Any]:
    return [{"name": "v", "projected": {"sources": list(sources)}}]


def files(payload: dict[str, Any]) -> dict[str, str]:
    (made,) = payload["container"][1]["projectedvolumemaps"]
    assert made["metadata"]["name"] == "v"
    return dict(made["data"])


def test_init_containers_come_first_and_only_what_is_mounted_travels(api: FakeKubeApi) -> None:
    payload = sent(api, [{"name": "v", "configMap": {"name": "cm"}}, {"name": "e", "emptyDir": {}}])
    assert [each["name"] for each in payload["container"]] == ["i", "c"]
    assert payload["container"][0]["configMaps"] == []
    (whole,) = payload["container"][1]["configMaps"]
    assert (whole["kind"], whole["data"], whole["binaryData"]) == (
        "ConfigMap",
        {"a": "1", "b": "2"},
        {"x": "/w=="},
    )
    assert payload["container"][1]["emptyDirs"] == ["e"]
    assert "managedFields" not in payload["pod"]["metadata"]
    assert payload["pod"]["kind"] == "Pod"


def test_projected_files(api: FakeKubeApi) -> None:
    payload = sent(
        api,
        projected(
            {"configMap": {"name": "cm", "items": [{"key": "a", "path": "deep/a"}]}},
            {"secret": {"name": "sec", "items": [{"key": "pw", "path": "pw"}]}},
            {"configMap": {"name": "none", "optional": True}},
            {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 7200}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ),
    )
    found = files(payload)
    token = json.loads(base64.b64decode(found.pop("token")))
    assert token == [["vault"], 7200, "p"]
    assert found == {"deep/a": "1", "pw": "pa$$", "labels": 'a="ü"\nb="q\\"\\n"'}


def test_bytes_in_a_projected_volume_travel_as_base64(api: FakeKubeApi) -> None:
    payload = sent(api, projected({"secret": {"name": "sec"}}))
    (made,) = payload["container"][1]["projectedvolumemaps"]
    assert (made["data"], made["binaryData"]) == ({"pw": "pa$$"}, {"x": "/w=="})


def test_downward_volume(api: FakeKubeApi) -> None:
    items = [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "cpus", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
    ]
    assert files(sent(api, [{"name": "v", "downwardAPI": {"items": items}}])) == {"name": "p", "cpus": "64"}


@pytest.mark.parametrize(
    "volume",
    [
        {"configMap": {"name": "none"}},
        {"secret": {"secretName": "none"}},
        {"configMap": {"name": "cm", "items": [{"key": "none", "path": "p"}]}},
        {"projected": {"sources": [{"secret": {"name": "sec", "items": [{"key": "none", "path": "p"}]}}]}},
    ],
)
def test_what_a_volume_misses_is_waited_for(api: FakeKubeApi, volume: dict[str, Any]) -> None:
    with pytest.raises(NotYet, match="none") as caught:
        sent(api, [{"name": "v", **volume}])
    assert (caught.value.reason, caught.value.event) == ("ContainerCreating", "FailedMount")


def test_an_optional_volume_may_be_missing(api: FakeKubeApi) -> None:
    payload = sent(api, [{"name": "v", "secret": {"secretName": "none", "optional": True}}])
    assert payload["container"][1]["secrets"] == []


def test_a_missing_key_is_waited_for_by_its_container(api: FakeKubeApi) -> None:
    variable = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "none"}}}
    with pytest.raises(NotYet, match='"none"') as caught:
        sent(api, [], env=[variable])
    assert caught.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize("value", ["/tmp", "..", "`id`", "", "a/../../b"])
def test_a_container_waits_for_a_part_of_a_volume_that_can_be_mounted(api: FakeKubeApi, value: str) -> None:
    body = pod(
        containers=[
            {"name": "good", "image": "i"},
            {
                "name": "c",
                "image": "i",
                "env": [{"name": "PART", "value": value}],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(PART)"}],
            },
        ],
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    client = KubeClient(kubernetes.client.Configuration(host=api.url))
    with pytest.raises(NotYet, match=r"spec\.containers\[1\]\.volumeMounts\[0\]\.subPathExpr") as caught:
        retrieved_pod_data(client, body, FACTS)
    assert caught.value.reason == "CreateContainerConfigError"
    assert caught.value.containers == {"c"}


def test_service_variables_name_a_part_of_a_volume(api: FakeKubeApi) -> None:
    api.put(f"{NS}/services/db", service("db"))
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(DB_SERVICE_HOST)"}
    payload = sent(api, [], volumeMounts=[mount])
    assert payload["pod"]["spec"]["containers"][0]["volumeMounts"] == [mount]


def test_a_missing_service_account_is_waited_for(api: FakeKubeApi) -> None:
    api.delete(f"{NS}/serviceaccounts/default", {})
    with pytest.raises(NotYet, match="serviceaccounts default not found"):
        sent(api, projected({"serviceAccountToken": {"path": "t"}}))


def test_forbidden_is_not_missing(api: FakeKubeApi) -> None:
    api.fail("GET", "/secrets/", 403)
    with pytest.raises(Forbidden):
        sent(api, [{"name": "v", "secret": {"secretName": "sec", "optional": True}}])


def test_unknown_projections_are_refused_by_name(api: FakeKubeApi) -> None:
    with pytest.raises(Unsupported, match="clusterTrustBundle"):
        sent(api, projected({"clusterTrustBundle": {"path": "p"}}))


def service(name: str, namespace: str = "ns", ip: str = "10.0.0.11", **spec: Any) -> dict[str, Any]:
    ports = [
        {"name": "http", "port": 80, "protocol": "TCP"},
        {"name": "d-n-s", "port": 53, "protocol": "UDP"},
    ]
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": ip, "ports": ports, **spec},
    }


def test_service_variables() -> None:
    made = service_variables("ns", True, [service("my-svc"), service("headless", ip="None")])
    assert {each["name"]: each["value"] for each in made} == {
        "MY_SVC_SERVICE_HOST": "10.0.0.11",
        "MY_SVC_SERVICE_PORT": "80",
        "MY_SVC_SERVICE_PORT_HTTP": "80",
        "MY_SVC_SERVICE_PORT_D_N_S": "53",
        "MY_SVC_PORT": "tcp://10.0.0.11:80",
        "MY_SVC_PORT_80_TCP": "tcp://10.0.0.11:80",
        "MY_SVC_PORT_80_TCP_PROTO": "tcp",
        "MY_SVC_PORT_80_TCP_PORT": "80",
        "MY_SVC_PORT_80_TCP_ADDR": "10.0.0.11",
        "MY_SVC_PORT_53_UDP": "udp://10.0.0.11:53",
        "MY_SVC_PORT_53_UDP_PROTO": "udp",
        "MY_SVC_PORT_53_UDP_PORT": "53",
        "MY_SVC_PORT_53_UDP_ADDR": "10.0.0.11",
    }


def test_without_service_links_only_the_api_server_is_known() -> None:
    services = [service("mine"), service("kubernetes", "default", "10.0.0.1"), service("other", "default")]
    hosts = [v["name"] for v in service_variables("ns", False, services) if v["name"].endswith("_HOST")]
    assert hosts == ["KUBERNETES_SERVICE_HOST"]
    hosts = [v["name"] for v in service_variables("ns", True, services) if v["name"].endswith("_HOST")]
    assert hosts == ["KUBERNETES_SERVICE_HOST", "MINE_SERVICE_HOST"]


def test_service_variables_come_before_the_pods_own(api: FakeKubeApi) -> None:
    mine = {"name": "KUBERNETES_PORT", "value": "mine"}
    env = sent(api, [], env=[mine])["pod"]["spec"]["containers"][0]["env"]
    assert env[-1] == mine
    assert env[0] == {"name": "KUBERNETES_SERVICE_HOST", "value": "10.0.0.1"}


def test_quoting_is_gos() -> None:
    assert (
        quoted('a"\\\n\x00\x7f é\u2028\U0001f600\u00a0')
        == '"a\\"\\\\\\n\\x00\\x7f é\\u2028\U0001f600\\u00a0"'
    )
