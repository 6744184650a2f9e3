"""References become plain values by the kubelet's rules; nothing missing becomes empty."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain import expand
from slurmrest_adapter.domain.errors import Invalid, PodError, Unsupported
from slurmrest_adapter.domain.resolve import Facts, resolve, unresolved
from slurmrest_adapter.translate.fields import check

pytestmark = pytest.mark.unit

FIRST = "spec.containers[0]"


def b64(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def config_map(name: str = "cm", namespace: str | None = None, **data: Any) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def secret(name: str = "s", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "lab"}, "data": {k: b64(v) for k, v in data.items()}}


def pod(env: list[Any] | None = None, group: str = "containers", **container: Any) -> dict[str, Any]:
    body = {"name": "main", "image": "x", **container}
    if env is not None:
        body["env"] = env
    return {
        "metadata": {
            "name": "p",
            "namespace": "lab",
            "uid": "u-1",
            "labels": {"app": "x", "a/b": "y"},
            "annotations": {"note": "$(HI)"},
        },
        "spec": {group: [body]},
    }


def variable(**source: Any) -> list[dict[str, Any]]:
    return [{"name": "A", "valueFrom": source}]


def value_of(env: list[Any], **objects: Any) -> Any:
    """What the container ends up with for A, expansion included."""
    resolved = resolve(pod(env), **objects)["spec"]["containers"][0]["env"]
    return dict(expand.env((v["name"], v.get("value") or "") for v in resolved)).get("A")


def key(name: str, key: str, optional: bool | None = None) -> dict[str, Any]:
    return {"name": name, "key": key, "optional": optional}


def test_keys_of_config_maps_and_secrets() -> None:
    assert value_of(variable(configMapKeyRef=key("cm", "k")), config_maps=[config_map(k="v")]) == "v"
    assert value_of(variable(secretKeyRef=key("s", "k")), secrets=[secret(k="v\n")]) == "v\n"
    assert value_of(variable(configMapKeyRef=key("cm", "k")), config_maps=[config_map(k="")]) == ""


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_what_a_reference_brings_in_is_never_expanded(value: str) -> None:
    env = [{"name": "B", "value": "other"}, *variable(secretKeyRef=key("s", "k"))]
    tricky = value + "$(B)$$(B)$"
    assert value_of(env, secrets=[secret(k=tricky)]) == tricky


def test_the_author_s_own_values_still_are() -> None:
    env = [*variable(configMapKeyRef=key("cm", "k")), {"name": "B", "value": "$(A)$(F)"}]
    manifest = pod(env, envFrom=[{"configMapRef": {"name": "cm"}}])
    found = resolve(manifest, [config_map(k="$(x)", F="f")])["spec"]["containers"][0]["env"]
    assert expand.env((v["name"], v["value"]) for v in found) == (
        ("F", "f"),
        ("k", "$(x)"),
        ("A", "$(x)"),
        ("B", "$(x)f"),
    )


def test_string_data_stands_over_data() -> None:
    found = {**secret(k="old"), "stringData": {"k": "new"}}
    assert value_of(variable(secretKeyRef=key("s", "k")), secrets=[found]) == "new"


def test_base64_may_be_wrapped() -> None:
    found = {"metadata": {"name": "s"}, "data": {"k": "aGVs\r\nbG8=\n"}}
    assert value_of(variable(secretKeyRef=key("s", "k")), secrets=[found]) == "hello"


@pytest.mark.parametrize("optional", [None, False])
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"configMapKeyRef": key("cm", "no")}, 'key "no" of ConfigMap "cm"'),
        ({"configMapKeyRef": key("no", "k")}, 'ConfigMap "no"'),
        ({"configMapKeyRef": key("cm", "blob")}, "binary"),
        ({"secretKeyRef": key("s", "no")}, 'key "no" of Secret "s"'),
        ({"secretKeyRef": key("no", "k")}, 'Secret "no"'),
        ({"secretKeyRef": key("elsewhere", "k")}, 'Secret "elsewhere"'),
    ],
)
def test_what_is_missing_is_named(source: dict[str, Any], words: str, optional: bool | None) -> None:
    kind = next(iter(source))
    source = {kind: {**source[kind], "optional": optional}}
    cm = {**config_map(k="v"), "binaryData": {"blob": b64(b"\xff")}}
    other = {"metadata": {"name": "elsewhere", "namespace": "other"}, "data": {"k": b64("v")}}
    with pytest.raises(Invalid) as caught:
        resolve(pod(variable(**source)), [cm], [secret(k="v"), other])
    assert caught.value.field == f"{FIRST}.env[0].valueFrom.{kind}"
    assert words in caught.value.reason


@pytest.mark.parametrize("reference", [key("cm", "no", True), key("no", "k", True)])
def test_optional_and_missing_is_not_set_at_all(reference: dict[str, Any]) -> None:
    env = [*variable(configMapKeyRef=reference), {"name": "B", "value": "1"}]
    found = resolve(pod(env), [config_map(k="v")])["spec"]["containers"][0]["env"]
    assert found == [{"name": "B", "value": "1"}]


@pytest.mark.parametrize(
    ("data", "kind"), [("!!!", Invalid), ("aGVsbG8", Invalid), (b64(b"\xff"), Unsupported), (7, Invalid)]
)
def test_bad_secret_data_is_refused_and_not_shown(data: Any, kind: type[PodError]) -> None:
    found = {"metadata": {"name": "s"}, "data": {"k": data}}
    with pytest.raises(kind, match='key "k" of Secret') as caught:
        resolve(pod(variable(secretKeyRef=key("s", "k"))), secrets=[found])
    assert str(data) not in str(caught.value)


def test_env_from_comes_first_and_in_order() -> None:
    manifest = pod(
        [{"name": "A", "value": "own"}],
        envFrom=[
            {"configMapRef": {"name": "cm"}},
            {"prefix": "S_", "secretRef": {"name": "s"}},
            {"configMapRef": {"name": "no", "optional": True}},
        ],
    )
    found = resolve(manifest, [config_map(B="2", A="1")], [secret(x="3")])["spec"]["containers"][0]
    assert found["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "2"},
        {"name": "S_x", "value": "3"},
        {"name": "A", "value": "own"},
    ]
    assert "envFrom" not in found


def test_keys_that_are_no_names_are_left_out_and_the_rest_is_judged_by_the_check() -> None:
    manifest = pod(envFrom=[{"configMapRef": {"name": "cm"}}])
    found = resolve(manifest, [config_map(**{"a=b": "1", "é": "1", "file.txt": "1", "OK": "1"})])
    assert [v["name"] for v in found["spec"]["containers"][0]["env"]] == ["OK", "file.txt"]
    assert [error.field for error in check(found, plain=True).refused] == [f"{FIRST}.env[1].name"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "lab"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['a/b']", "y"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", "$(HI)"),
        ("spec.nodeName", "slurm"),
        ("spec.serviceAccountName", "default"),
        ("status.hostIP", "10.0.0.1"),
        ("status.hostIPs", "10.0.0.1,fd00::1"),
        ("status.podIP", "10.0.0.2"),
        ("status.podIPs", "10.0.0.2"),
    ],
)
def test_fields_of_the_pod(path: str, expected: str) -> None:
    facts = Facts("slurm", ("10.0.0.1", "fd00::1"), ("10.0.0.2",))
    assert value_of(variable(fieldRef={"fieldPath": path}), facts=facts) == expected


@pytest.mark.parametrize("path", ["spec.nodeName", "status.hostIP", "status.podIP", "status.podIPs"])
def test_what_is_not_known_yet_is_refused(path: str) -> None:
    with pytest.raises(Unsupported, match="not known") as caught:
        resolve(pod(variable(fieldRef={"fieldPath": path})))
    assert caught.value.field == f"{FIRST}.env[0].valueFrom.fieldRef.fieldPath"


@pytest.mark.parametrize("path", ["", "metadata.labels", "spec.containers", "metadata.labels[app]", None, 3])
def test_fields_that_may_not_be_asked_for(path: object) -> None:
    with pytest.raises(Invalid) as caught:
        resolve(pod(variable(fieldRef={"fieldPath": path})))
    assert caught.value.field == f"{FIRST}.env[0].valueFrom.fieldRef.fieldPath"


RESOURCES = {"limits": {"cpu": "1500m", "memory": "1Gi"}, "requests": {"cpu": "250m"}}


@pytest.mark.parametrize(
    ("asked", "divisor", "expected"),
    [
        ("limits.cpu", None, "2"),
        ("limits.cpu", "1m", "1500"),
        ("limits.cpu", "0", "2"),
        ("requests.cpu", "1m", "250"),
        ("requests.cpu", None, "1"),
        ("limits.memory", None, str(2**30)),
        ("limits.memory", "1Mi", "1024"),
        ("limits.memory", "1G", "2"),
        ("requests.memory", "1Gi", "1"),
        ("requests.ephemeral-storage", None, "0"),
        ("limits.ephemeral-storage", "1Gi", "10"),
    ],
)
def test_resources(asked: str, divisor: str | None, expected: str) -> None:
    reference = {"resource": asked, "divisor": divisor}
    manifest = pod(variable(resourceFieldRef=reference), resources=RESOURCES)
    found = resolve(manifest, facts=Facts(allocatable={"ephemeral-storage": "10Gi"}))
    assert found["spec"]["containers"][0]["env"] == [{"name": "A", "value": expected}]


@pytest.mark.parametrize(
    ("reference", "kind", "field"),
    [
        ({"resource": "limits.ephemeral-storage"}, Unsupported, "resource"),
        ({"resource": "limits.gpu"}, Invalid, "resource"),
        ({"resource": "cpu"}, Invalid, "resource"),
        ({}, Invalid, "resource"),
        ({"resource": "limits.cpu", "divisor": "1k"}, Invalid, "divisor"),
        ({"resource": "limits.memory", "divisor": "1m"}, Invalid, "divisor"),
        ({"resource": "limits.memory", "divisor": "x"}, Invalid, "divisor"),
        ({"resource": "limits.cpu", "containerName": "no"}, Invalid, "containerName"),
    ],
)
def test_bad_resource_references(reference: dict[str, Any], kind: type[PodError], field: str) -> None:
    with pytest.raises(kind) as caught:
        resolve(pod(variable(resourceFieldRef=reference), resources=RESOURCES))
    assert caught.value.field == f"{FIRST}.env[0].valueFrom.resourceFieldRef.{field}"


def test_another_container_s_resources() -> None:
    manifest = pod(variable(resourceFieldRef={"resource": "limits.cpu", "containerName": "other"}))
    manifest["spec"]["containers"].append({"name": "other", "resources": {"limits": {"cpu": 3}}})
    assert resolve(manifest)["spec"]["containers"][0]["env"] == [{"name": "A", "value": "3"}]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ({}, Invalid),
        ({"fieldRef": {}, "secretKeyRef": {}}, Invalid),
        ({"fileKeyRef": {"key": "k"}}, Unsupported),
        ({"newRef": {}}, Unsupported),
    ],
)
def test_sources_that_cannot_be_read(source: dict[str, Any], kind: type[PodError]) -> None:
    with pytest.raises(kind) as caught:
        resolve(pod(variable(**source)))
    assert caught.value.field.startswith(f"{FIRST}.env[0].valueFrom")


def test_value_and_reference_together_are_refused() -> None:
    with pytest.raises(Invalid):
        resolve(pod([{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]))


def test_the_pod_that_came_in_is_left_alone_and_the_rest_of_it_stays() -> None:
    manifest = pod(variable(fieldRef={"fieldPath": "metadata.name"}), command=["x"])
    manifest["spec"].update(hostname="h", volumes=None)
    before = copy.deepcopy(manifest)
    found = resolve(manifest)
    assert manifest == before
    found["spec"]["containers"][0].pop("env")
    before["spec"]["containers"][0].pop("env")
    assert found == before


@pytest.mark.parametrize("group", ["containers", "initContainers"])
def test_what_is_left_unresolved_is_named_and_nothing_after_resolving(group: str) -> None:
    env = [
        *variable(configMapKeyRef=key("cm", "k")),
        *variable(secretKeyRef=key("s", "k")),
        *variable(fieldRef={"fieldPath": "metadata.uid"}),
        *variable(resourceFieldRef={"resource": "limits.cpu"}),
    ]
    refs = [{"configMapRef": {"name": "cm"}}, {"secretRef": {"name": "s"}}]
    manifest = pod(env, group, envFrom=refs, resources=RESOURCES)
    first = f"spec.{group}[0]"
    errors = [str(error) for error in unresolved(manifest)]
    assert errors == [
        f'{first}.envFrom[0].configMapRef: not resolved: ConfigMap "cm"',
        f'{first}.envFrom[1].secretRef: not resolved: Secret "s"',
        f'{first}.env[0].valueFrom.configMapKeyRef: not resolved: key "k" of ConfigMap "cm"',
        f'{first}.env[1].valueFrom.secretKeyRef: not resolved: key "k" of Secret "s"',
        f"{first}.env[2].valueFrom.fieldRef: not resolved: field metadata.uid",
        f"{first}.env[3].valueFrom.resourceFieldRef: not resolved: resource limits.cpu",
    ]
    assert sorted(errors) == sorted(str(error) for error in check(manifest).refused)
    assert unresolved(resolve(manifest, [config_map(k="v")], [secret(k="v")])) == []


def test_one_name_twice_is_refused() -> None:
    with pytest.raises(Invalid, match="twice"):
        resolve(pod(), [config_map(), config_map(namespace="lab")])
