"""Environment: ConfigMaps, Secrets, composition, services, the downward API (R010 to R023)."""

from __future__ import annotations

import base64
import ipaddress
from typing import Any

import pytest

from tests.fidelity.specs import NAMESPACE, Images, config_map, container, pod, secret, unique
from tests.fidelity.ways import Below, Cluster, Way

DATA = {
    "data_1": "value-1",
    "data_2": "value-2",
    "data_3": "value-3\nof two lines, with $(data_1) and 'quotes'",
}


def variables(
    way: Way, images: Images, *objects: Any, namespace: str = NAMESPACE, **fields: Any
) -> dict[str, str]:
    """What a container with these fields has; a shell would drop names that are none of its own."""
    made = pod(
        container(images.shell, None, command=["cat", "/proc/self/environ"], **fields), namespace=namespace
    )
    printed = way.output(made, *objects)
    return dict(pair.split("=", 1) for pair in printed.removesuffix("\n").split("\0") if pair)


def one_from(kind: str, name: str, key: str) -> dict[str, Any]:
    return {"valueFrom": {f"{kind}KeyRef": {"name": name, "key": key}}}


def all_from(kind: str, name: str) -> list[dict[str, Any]]:
    """Twice: as they are, and with a prefix that is no shell identifier."""
    return [{f"{kind}Ref": {"name": name}}, {"prefix": "p-", f"{kind}Ref": {"name": name}}]


def encoded(data: dict[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}


def expect_all(found: dict[str, str]) -> None:
    for key, value in DATA.items():
        assert (found[key], found[f"p-{key}"]) == (value, value)


def test_R010(cluster: Cluster, images: Images) -> None:
    name = unique("map")
    given = [{"name": f"CONFIG_{key}", **one_from("configMap", name, key)} for key in DATA]
    found = variables(cluster, images, config_map(name, data=DATA), env=given)
    assert {key: found[f"CONFIG_{key}"] for key in DATA} == DATA


def test_R011(cluster: Cluster, images: Images) -> None:
    name = unique("map")
    expect_all(variables(cluster, images, config_map(name, data=DATA), envFrom=all_from("configMap", name)))


def test_R013(cluster: Cluster, images: Images) -> None:
    name = unique("secret")
    given = [{"name": f"SECRET_{key}", **one_from("secret", name, key)} for key in DATA]
    found = variables(cluster, images, secret(name, data=encoded(DATA)), env=given)
    assert {key: found[f"SECRET_{key}"] for key in DATA} == DATA


def test_R014(cluster: Cluster, images: Images) -> None:
    name = unique("secret")
    expect_all(variables(cluster, images, secret(name, data=encoded(DATA)), envFrom=all_from("secret", name)))


def test_R016(cluster: Cluster, images: Images) -> None:
    given = {
        "FOO": "foo-value",
        "BAR": "bar-value",
        "FOOBAR": "$(FOO);;$(BAR)",
        "EARLY": "$(LATE)",
        "LATE": "l",
    }
    found = variables(cluster, images, env=[{"name": key, "value": value} for key, value in given.items()])
    assert found["FOOBAR"] == "foo-value;;bar-value"
    # Only what stands before it.
    assert found["EARLY"] == "$(LATE)"


@pytest.fixture
def service(cluster: Cluster) -> dict[str, Any]:
    """A service; its name makes variables for every pod of the namespace until it is removed."""
    name = unique("fooservice")
    spec = {"ports": [{"port": 8765, "targetPort": 8080}], "selector": {"name": name}}
    made = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }
    cluster.make(made)
    stored = cluster.site.api.find(f"/api/v1/namespaces/{NAMESPACE}/services/{name}")
    assert stored is not None
    return stored


def test_R017(cluster: Cluster, images: Images, service: dict[str, Any]) -> None:
    found = variables(cluster, images)
    prefix, host = service["metadata"]["name"].upper().replace("-", "_"), service["spec"]["clusterIP"]
    url = f"tcp://{host}:8765"
    wanted = {
        "SERVICE_HOST": host,
        "SERVICE_PORT": "8765",
        "PORT": url,
        "PORT_8765_TCP": url,
        "PORT_8765_TCP_PORT": "8765",
        "PORT_8765_TCP_PROTO": "tcp",
        "PORT_8765_TCP_ADDR": host,
    }
    assert {key: found[f"{prefix}_{key}"] for key in wanted} == wanted
    assert found["KUBERNETES_SERVICE_PORT"] == "443"
    ipaddress.ip_address(found["KUBERNETES_SERVICE_HOST"])


def resource_variables() -> list[dict[str, Any]]:
    return [
        {
            "name": f"{name.upper()}_{kind.upper()}",
            "valueFrom": {"resourceFieldRef": {"resource": f"{kind}s.{name}"}},
        }
        for name in ("cpu", "memory")
        for kind in ("limit", "request")
    ]


def test_R018(cluster: Cluster, images: Images) -> None:
    asked = {"requests": {"cpu": "250m", "memory": "32Mi"}, "limits": {"cpu": "1250m", "memory": "64Mi"}}
    found = variables(cluster, images, env=resource_variables(), resources=asked)
    seen = [found[name] for name in ("CPU_LIMIT", "CPU_REQUEST", "MEMORY_LIMIT", "MEMORY_REQUEST")]
    assert seen == ["2", "1", str(64 * 2**20), str(32 * 2**20)]


def test_R019(cluster: Cluster, images: Images) -> None:
    limits = [each for each in resource_variables() if each["name"].endswith("LIMIT")]
    found = variables(cluster, images, env=limits)
    for resource in ("cpu", "memory"):
        assert int(found[f"{resource.upper()}_LIMIT"]) == cluster.allocatable(resource)
    assert int(found["CPU_LIMIT"]) > 0


def field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def test_R020(cluster: Cluster, images: Images) -> None:
    made = cluster.create(
        pod(container(images.shell, "echo $HOST_IP", env=[field("HOST_IP", "status.hostIP")]))
    )
    done = cluster.finished(made)
    told = cluster.log(made).strip()
    assert told == done["status"]["hostIP"]
    ipaddress.ip_address(told)


def test_R021(below: Below, images: Images) -> None:
    """The lab's API server knows no status.hostIPs."""
    found = variables(
        below, images, env=[field("HOST_IP", "status.hostIP"), field("HOST_IPS", "status.hostIPs")]
    )
    addresses = found["HOST_IPS"].split(",")
    assert addresses[0] == found["HOST_IP"]
    for each in addresses:
        ipaddress.ip_address(each)


def test_R022(cluster: Cluster, images: Images) -> None:
    made = cluster.create(
        pod(container(images.shell, "echo $POD_UID", env=[field("POD_UID", "metadata.uid")]))
    )
    cluster.finished(made)
    assert cluster.log(made).strip() == made["metadata"]["uid"]


def test_R023(cluster: Cluster, images: Images) -> None:
    fields = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}
    given = [field(name, path) for name, path in fields.items()]
    script = "echo $POD_NAME $POD_NAMESPACE $POD_IP; sleep 300"
    made = cluster.create(pod(container(images.shell, script, env=given)))
    found = cluster.until(made, lambda found: bool(found["status"].get("podIP")) and bool(cluster.log(made)))
    told = cluster.log(made).split()
    assert told == [made["metadata"]["name"], NAMESPACE, found["status"]["podIP"]]
    ipaddress.ip_address(told[2])
