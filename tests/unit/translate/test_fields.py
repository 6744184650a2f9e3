"""The field table: nothing of the core v1 schema forgotten, every verdict seen at work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes.client as models
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import Invalid, Unsupported
from slurmrest_adapter.domain.resolve import resolve
from slurmrest_adapter.translate.fields import TABLES, Checked, check
from slurmrest_adapter.translate.fields_docs import document
from slurmrest_adapter.translate.fields_model import Case, Row, Verdict

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


def schema(kind: str) -> dict[str, str]:
    """JSON field → type of one v1 type, from the client: models of plain classes (36) or pydantic (37)."""
    model = getattr(models, "V1Container" if kind == "InitContainer" else f"V1{kind}")
    return {key: model.openapi_types[attribute] for attribute, key in model.attribute_map.items()}


@pytest.mark.parametrize("kind", TABLES)
def test_no_field_of_the_schema_is_forgotten(kind: str) -> None:
    assert schema(kind).keys() - TABLES[kind].keys() == set()


@pytest.mark.parametrize("kind", TABLES)
def test_shapes_are_the_schema_s(kind: str) -> None:
    for key, written in schema(kind).items():
        shape = "list" if written.startswith(("list[", "List[")) else written
        expected = shape if shape in ("str", "int", "bool", "list") else "map"
        if key == "sizeLimit":
            expected = "quantity"  # which may be written as a number
        assert TABLES[kind][key].shape == expected, key


def test_the_core_types_are_there() -> None:
    assert {"PodSpec", "Container", "Volume"} <= TABLES.keys()
    kinds = {row.kind for rows in TABLES.values() for row in rows.values() if row.kind}
    assert kinds <= TABLES.keys()
    assert kinds | {"PodSpec"} == TABLES.keys()


# Where each type stands in a volume.
IN_VOLUMES = {
    "ConfigMapVolumeSource": "configMap",
    "SecretVolumeSource": "secret",
    "ProjectedVolumeSource": "projected",
    "DownwardAPIVolumeSource": "downwardAPI",
    "EmptyDirVolumeSource": "emptyDir",
    "KeyToPath": "configMap.items[]",
    "VolumeProjection": "projected.sources[]",
    "ConfigMapProjection": "projected.sources[].configMap",
    "SecretProjection": "projected.sources[].secret",
    "DownwardAPIProjection": "projected.sources[].downwardAPI",
    "DownwardAPIVolumeFile": "downwardAPI.items[]",
    "ServiceAccountTokenProjection": "projected.sources[].serviceAccountToken",
}

# One pod for each line of the table: where a type stands in a pod, and a value for the field.


def base(**spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/x:1"}
    return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def in_container(**fields: Any) -> dict[str, Any]:
    pod = base()
    pod["spec"]["containers"][0].update(fields)
    return pod


def pod_with(kind: str, key: str, value: Any) -> tuple[dict[str, Any], str]:
    """A pod that holds this value in this field of this type, and the field's path."""
    first = "spec.containers[0]"
    match kind:
        case "PodSpec":
            return base(**{key: value}), f"spec.{key}"
        case "PodOS":
            return base(os={key: value}), f"spec.os.{key}"
        case "PodSecurityContext":
            return base(securityContext={key: value}), f"spec.securityContext.{key}"
        case "Volume":
            pod = in_container(volumeMounts=[{"name": "v", "mountPath": "/v"}])
            pod["spec"]["volumes"] = [{"name": "v", key: value}]
            if key == "name":
                pod = base(volumes=[{key: value}])
            return pod, f"spec.volumes[0].{key}"
        case "VolumeMount":
            pod = in_container(volumeMounts=[{"name": "v", "mountPath": "/v", key: value}])
            pod["spec"]["volumes"] = [{"name": value if key == "name" else "v"}]
            return pod, f"{first}.volumeMounts[0].{key}"
        case _ if kind in IN_VOLUMES:
            source, *steps = IN_VOLUMES[kind].split(".")
            inner: Any = {key: value}
            for step in reversed(steps):
                inner = {step.removesuffix("[]"): [inner] if step.endswith("[]") else inner}
            pod = in_container(volumeMounts=[{"name": "v", "mountPath": "/v"}])
            pod["spec"]["volumes"] = [{"name": "v", source: inner}]
            return pod, f"spec.volumes[0].{IN_VOLUMES[kind].replace('[]', '[0]')}.{key}"
        case "Container":
            return in_container(**{key: value}), f"{first}.{key}"
        case "InitContainer":
            init = {"name": "init", "image": "x:1", key: value}
            return base(initContainers=[init]), f"spec.initContainers[0].{key}"
        case "EnvVar":
            return in_container(env=[{"name": "A", key: value}]), f"{first}.env[0].{key}"
        case "EnvVarSource":
            env = [{"name": "A", "valueFrom": {key: value}}]
            return in_container(env=env), f"{first}.env[0].valueFrom.{key}"
        case "EnvFromSource":
            return in_container(envFrom=[{key: value}]), f"{first}.envFrom[0].{key}"
        case "SecurityContext" | "ResourceRequirements" | "Lifecycle":
            holder = {"SecurityContext": "securityContext", "ResourceRequirements": "resources"}
            name = holder.get(kind, "lifecycle")
            return in_container(**{name: {key: value}}), f"{first}.{name}.{key}"
    name = kind[0].lower() + kind[1:]
    return in_container(securityContext={name: {key: value}}), f"{first}.securityContext.{name}.{key}"


def sample(row: Row, key: str) -> Any:
    """A value of the field's shape that no case of its row speaks of."""
    if key == "volumeMounts":
        return [{"name": "v", "mountPath": "/v"}]
    if key == "valueFrom":
        return {"fieldRef": {"fieldPath": "metadata.name"}}
    inner = {} if row.kind else {"a": "b"}
    plain = {"str": "x", "int": 0, "bool": True, "map": {"a": "b"}, "list": [{"a": "b"}], "quantity": 5}
    value = {"map": inner, "list": [inner]}.get(row.shape, plain[row.shape])
    if row.shape == "list" and row.kind == "EnvVar":
        value = [{"name": "A", "value": "b"}]
    if any(case.fits(value) for case in row.cases):
        value = False
    return value


def lines() -> Iterator[Any]:
    """Every line of the table with a value that it decides."""
    for kind, rows in TABLES.items():
        for key, row in rows.items():
            for case in row.cases:
                yield pytest.param(kind, key, case.value, case, id=f"{kind}.{key}={case.value}")
            yield pytest.param(kind, key, sample(row, key), row, id=f"{kind}.{key}")


def at(checked: Checked, path: str) -> list[Unsupported]:
    return [e for e in checked.refused if isinstance(e, Unsupported) and re.match(re.escape(path), e.field)]


@pytest.mark.parametrize(("kind", "key", "value", "line"), list(lines()))
def test_each_verdict_at_work(kind: str, key: str, value: Any, line: Row | Case) -> None:
    pod, path = pod_with(kind, key, value)
    if key == "volumeMounts":
        pod["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    if key == "valueFrom":  # done, but before the check
        pod = resolve({"metadata": {"name": "p"}, **pod})
    checked = check(pod)
    noted = [note for note in checked.notes if note.startswith(f"{path}: ")]
    if line.verdict is Verdict.REFUSED:
        assert at(checked, path), (checked, path)
        assert not noted
    else:
        assert not at(checked, path)
        assert not [error for error in checked.refused if isinstance(error, Invalid)]
        assert bool(noted) == line.note


@pytest.mark.parametrize("empty", [None, False, "", [], {}])
def test_what_says_nothing_is_not_refused(empty: object) -> None:
    shapes = {"str": "", "bool": False, "list": [], "map": {}}
    for kind, rows in TABLES.items():
        for key, row in rows.items():
            mounted = kind == "Volume" and empty == {}  # "emptyDir: {}" says a great deal
            named = kind == "EnvVar" and key == "name"
            reference = row.words is not None and empty is not None
            if empty is None or (shapes.get(row.shape) == empty and type(empty) is type(shapes[row.shape])):
                pod, path = pod_with(kind, key, empty)
                if not (mounted or named or reference):
                    assert not at(check(pod), path), path


@pytest.mark.parametrize(
    ("env", "field"),
    [
        ({"valueFrom": {}}, "valueFrom"),
        ({"valueFrom": {"secretKeyRef": None}}, "valueFrom"),
        ({"valueFrom": {"secretKeyRef": {}}}, "valueFrom.secretKeyRef"),
    ],
)
def test_an_empty_reference_is_not_an_empty_value(env: dict[str, Any], field: str) -> None:
    (error,) = check(in_container(env=[{"name": "A", **env}])).refused
    assert error.field == f"spec.containers[0].env[0].{field}"


def test_what_the_api_server_adds_is_accepted() -> None:
    volume = {"name": "kube-api-access-x7k2p", "projected": {"sources": [], "defaultMode": 420}}
    pod = in_container(
        imagePullPolicy="IfNotPresent",
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        securityContext={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        volumeMounts=[{"name": volume["name"], "readOnly": True, "mountPath": TOKEN_PATH}],
    )
    pod["spec"].update(
        dnsPolicy="ClusterFirst",
        enableServiceLinks=True,
        nodeName="slurm",
        nodeSelector={"kubernetes.io/hostname": "slurm"},
        preemptionPolicy="PreemptLowerPriority",
        priority=0,
        schedulerName="default-scheduler",
        securityContext={"seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": True},
        serviceAccount="default",
        serviceAccountName="default",
        terminationGracePeriodSeconds=30,
        tolerations=[{"key": "virtual-node.interlink/no-schedule", "operator": "Exists"}],
        volumes=[volume],
    )
    checked = check(pod)
    assert checked.refused == []
    assert checked.notes == []


def test_a_volume_that_is_not_carried_is_refused_with_its_mounts() -> None:
    pod = in_container(volumeMounts=[{"name": "v", "mountPath": "/v"}])
    pod["spec"]["volumes"] = [{"name": "v", "nfs": {"server": "s", "path": "/"}}]
    assert [error.field for error in check(pod).refused] == [
        "spec.containers[0].volumeMounts[0]",
        "spec.volumes[0].nfs",
    ]


def test_volumes_that_nobody_mounts_have_no_effect() -> None:
    assert check(base(volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}])).refused == []


def test_a_mount_without_a_volume_is_invalid() -> None:
    (error,) = check(in_container(volumeMounts=[{"name": "v", "mountPath": "/v"}])).refused
    assert isinstance(error, Invalid)
    assert error.field == "spec.containers[0].volumeMounts[0].name"


def test_all_that_is_refused_comes_in_the_document_s_order() -> None:
    pod = in_container(livenessProbe={"exec": {}}, stdin=True, securityContext={"privileged": True})
    pod["spec"].update(hostPID=True, runtimeClassName="kata")
    assert [error.field for error in check(pod).refused] == [
        "spec.containers[0].livenessProbe",
        "spec.containers[0].stdin",
        "spec.containers[0].securityContext.privileged",
        "spec.hostPID",
        "spec.runtimeClassName",
    ]


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never", None])
def test_restart_policies_are_carried_and_need_no_words(policy: str | None) -> None:
    init = {"name": "i", "image": "x", "restartPolicy": policy}  # with Always it is a sidecar
    for pod in (base(restartPolicy=policy), base(initContainers=[init]), in_container(restartPolicy=policy)):
        checked = check(pod)
        assert (checked.refused, checked.notes) == ([], [])


def test_unknown_policies_are_refused() -> None:
    init = {"name": "i", "image": "x", "restartPolicy": "always"}
    pod = in_container(restartPolicy="", terminationMessagePolicy="Log")
    pod["spec"].update(restartPolicy="Sometimes", initContainers=[init])
    assert {error.field: error.reason for error in check(pod).refused} == {
        "spec.containers[0].terminationMessagePolicy": "must be File or FallbackToLogsOnError",
        "spec.initContainers[0].restartPolicy": "must be Always, OnFailure or Never",
        "spec.restartPolicy": "must be Always, OnFailure or Never",
    }


def test_the_site_decides_on_users() -> None:
    pod = in_container(securityContext={"runAsUser": 0})
    assert check(pod).refused == []
    (error,) = check(pod, "refuse").refused
    assert error.field == "spec.containers[0].securityContext.runAsUser"
    assert "identity.run_as_user: refuse" in error.reason


@pytest.mark.parametrize(
    ("key", "hint"),
    [("livenesProbe", "'livenessProbe'"), ("Command", "'command'"), ("volumemounts", "'volumeMounts'")],
)
def test_unknown_fields_name_the_nearest(key: str, hint: str) -> None:
    (error,) = check(in_container(**{key: []})).refused
    assert error.field == f"spec.containers[0].{key}"
    assert hint in error.reason


def test_unknown_fields_without_a_neighbour() -> None:
    (error,) = check(base(zzzzzz=1)).refused
    assert str(error) == "spec.zzzzzz: unknown field"


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ({}, "spec"),
        ({"spec": []}, "spec"),
        (base(containers={}), "spec.containers"),
        (base(containers=["x"]), "spec.containers[0]"),
        (base(hostPID="yes"), "spec.hostPID"),
        (base(activeDeadlineSeconds="60"), "spec.activeDeadlineSeconds"),
        (base(activeDeadlineSeconds=True), "spec.activeDeadlineSeconds"),
        (in_container(env=[{"name": "A", "value": 1}]), "spec.containers[0].env[0].value"),
        (in_container(volumeMounts=[1]), "spec.containers[0].volumeMounts[0]"),
    ],
)
def test_wrong_shapes_are_invalid(pod: dict[str, Any], field: str) -> None:
    (error,) = check(pod).refused
    assert isinstance(error, Invalid)
    assert error.field == field


names = st.sampled_from(sorted({key for rows in TABLES.values() for key in rows} | {"", "x"}))
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=20,
)


@given(st.dictionaries(names, anything, max_size=6), st.dictionaries(names, anything, max_size=6))
def test_nothing_a_document_can_hold_breaks_the_check(
    spec: Mapping[str, Any], inner: Mapping[str, Any]
) -> None:
    checked = check({"spec": {**spec, "containers": [inner]}})
    for error in checked.refused:
        assert error.field.startswith("spec.")
        assert isinstance(error, Invalid | Unsupported)


def test_the_document_is_current() -> None:
    assert (ROOT / "docs" / "fields.md").read_text(encoding="utf-8") == document()
