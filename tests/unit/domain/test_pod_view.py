"""The pod view names the field of whatever has a wrong shape, and never breaks otherwise."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.pod import ContainerView, PodView, view
from tests.fakes.pods import container, pod

BROAD = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=200)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def read_all(raw: Any) -> None:
    """Read everything that a view hands out."""
    seen = view(raw)
    for name in (
        "name", "namespace", "uid", "service_account", "labels", "annotations", "restart_policy",
        "grace_seconds", "deadline_seconds",
    ):  # fmt: skip
        getattr(seen, name)
    for one in seen.containers():
        _ = one.name, one.image, one.env, one.words("command"), one.words("args")
        _ = one.resources("limits"), one.resources("requests")


def places(raw: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document."""
    found = [at] if at else []
    if isinstance(raw, dict):
        for key, value in raw.items():
            found += places(value, (*at, key))
    elif isinstance(raw, list):
        for index, value in enumerate(raw):
            found += places(value, (*at, index))
    return found


RICH = pod(
    container(
        command=["sh"],
        args=["-c", "true"],
        env=[{"name": "A", "value": "1"}],
        resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
    ),
    initContainers=[container("first")],
    serviceAccountName="robot",
    activeDeadlineSeconds=60,
    terminationGracePeriodSeconds=5,
)


def test_a_good_pod() -> None:
    seen = view(RICH)
    assert (seen.name, seen.namespace, seen.service_account) == ("train", "physics", "robot")
    assert (seen.grace_seconds, seen.deadline_seconds, seen.restart_policy) == (5, 60, "Never")
    assert [c.name for c in seen.containers()] == ["first", "main"]
    assert [c.init for c in seen.containers()] == [True, False]
    assert seen.raw is RICH


def test_defaults_are_kubernetes_own() -> None:
    raw = pod()
    del raw["metadata"]["namespace"]
    del raw["spec"]["restartPolicy"]
    seen = view(raw)
    assert (seen.namespace, seen.service_account, seen.restart_policy) == ("default", "default", "Always")
    assert (seen.grace_seconds, seen.deadline_seconds) == (30, None)


@pytest.mark.parametrize("key", ["initContainers", "serviceAccountName", "activeDeadlineSeconds"])
def test_null_counts_as_absent(key: str) -> None:
    raw = pod()
    raw["spec"][key] = None
    read_all(raw)


@given(JSON)
@BROAD
def test_random_values_are_refused_by_field(raw: Any) -> None:
    with pytest.raises(Invalid) as caught:
        read_all(raw)
    assert caught.value.field


@given(st.data(), JSON)
@BROAD
def test_a_good_pod_with_one_value_replaced(data: st.DataObject, value: Any) -> None:
    raw = copy.deepcopy(RICH)
    *way, last = data.draw(st.sampled_from(places(raw)))
    node: Any = raw
    for step in way:
        node = node[step]
    node[last] = value
    with contextlib.suppress(Invalid):
        read_all(raw)


WRONG: list[tuple[tuple[Any, ...], Any, str]] = [
    (("kind",), "Deployment", "kind"),
    (("apiVersion",), "apps/v1", "kind"),
    (("metadata",), [], "metadata"),
    (("metadata", "name"), None, "metadata.name"),
    (("metadata", "name"), "", "metadata.name"),
    (("metadata", "name"), 5, "metadata.name"),
    (("metadata", "name"), "Train", "metadata.name"),
    (("metadata", "name"), "train\n", "metadata.name"),
    (("metadata", "name"), "x" * 254, "metadata.name"),
    (("metadata", "namespace"), 0, "metadata.namespace"),
    (("metadata", "namespace"), False, "metadata.namespace"),
    (("metadata", "namespace"), "a.b", "metadata.namespace"),
    (("metadata", "uid"), None, "metadata.uid"),
    (("metadata", "uid"), 12, "metadata.uid"),
    (("metadata", "uid"), "../x", "metadata.uid"),
    (("metadata", "labels"), [], "metadata.labels"),
    (("metadata", "annotations"), "x", "metadata.annotations"),
    (("spec",), None, "spec.containers"),
    (("spec",), "x", "spec"),
    (("spec", "containers"), [], "spec.containers"),
    (("spec", "containers"), {}, "spec.containers"),
    (("spec", "containers"), ["x"], "spec.containers[0]"),
    (("spec", "initContainers"), {}, "spec.initContainers"),
    (("spec", "serviceAccountName"), 0, "spec.serviceAccountName"),
    (("spec", "serviceAccountName"), [], "spec.serviceAccountName"),
    (("spec", "restartPolicy"), False, "spec.restartPolicy"),
    (("spec", "terminationGracePeriodSeconds"), -1, "spec.terminationGracePeriodSeconds"),
    (("spec", "terminationGracePeriodSeconds"), "30", "spec.terminationGracePeriodSeconds"),
    (("spec", "terminationGracePeriodSeconds"), True, "spec.terminationGracePeriodSeconds"),
    (("spec", "terminationGracePeriodSeconds"), 10**5000, "spec.terminationGracePeriodSeconds"),
    (("spec", "activeDeadlineSeconds"), 0, "spec.activeDeadlineSeconds"),
    (("spec", "activeDeadlineSeconds"), 1.5, "spec.activeDeadlineSeconds"),
    (("spec", "containers", 0, "name"), None, "spec.containers[0].name"),
    (("spec", "containers", 0, "name"), "first", "spec.containers[0].name"),
    (("spec", "containers", 0, "name"), "a/b", "spec.containers[0].name"),
    (("spec", "containers", 0, "name"), "x" * 64, "spec.containers[0].name"),
    (("spec", "containers", 0, "image"), None, "spec.containers[0].image"),
    (("spec", "containers", 0, "image"), ["x"], "spec.containers[0].image"),
    (("spec", "containers", 0, "command"), "sh", "spec.containers[0].command"),
    (("spec", "containers", 0, "args", 1), 5, "spec.containers[0].args[1]"),
    (("spec", "containers", 0, "args", 1), None, "spec.containers[0].args[1]"),
    (("spec", "containers", 0, "args", 1), "a\0b", "spec.containers[0].args[1]"),
    (("spec", "containers", 0, "args", 1), "\ud800", "spec.containers[0].args[1]"),
    (("spec", "containers", 0, "env"), {"A": "1"}, "spec.containers[0].env"),
    (("spec", "containers", 0, "env", 0), "A=1", "spec.containers[0].env[0]"),
    (("spec", "containers", 0, "env", 0, "name"), None, "spec.containers[0].env[0].name"),
    (("spec", "containers", 0, "env", 0, "value"), 0, "spec.containers[0].env[0].value"),
    (("spec", "containers", 0, "env", 0, "value"), False, "spec.containers[0].env[0].value"),
    (("spec", "containers", 0, "env", 0, "value"), [], "spec.containers[0].env[0].value"),
    (("spec", "containers", 0, "resources"), [], "spec.containers[0].resources"),
    (("spec", "containers", 0, "resources", "limits"), "1", "spec.containers[0].resources.limits"),
]


@pytest.mark.parametrize(("way", "value", "field"), WRONG, ids=[f"{i}-{w[2]}" for i, w in enumerate(WRONG)])
def test_a_wrong_value_is_named(way: tuple[Any, ...], value: Any, field: str) -> None:
    raw = copy.deepcopy(RICH)
    node: Any = raw
    for step in way[:-1]:
        node = node[step]
    node[way[-1]] = value
    with pytest.raises(Invalid) as caught:
        read_all(raw)
    assert caught.value.field == field
    assert "\n" not in caught.value.reason


def test_a_value_of_the_environment_is_in_no_error_and_no_repr() -> None:
    secret = "hunter2\0"
    one = ContainerView(container(env=[{"name": "A", "value": secret}]), "spec.containers[0]", False)
    with pytest.raises(Invalid) as caught:
        _ = one.env
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(one) + repr(PodView(pod(one.raw)))  # type: ignore[arg-type]
