"""Variables that no container could be given are refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmrest_adapter.domain.errors import Invalid, Unsupported
from slurmrest_adapter.translate.fields import check
from slurmrest_adapter.translate.fields_env import check_env

pytestmark = pytest.mark.unit


# Short enough for the strategy below to make them.
TAKEN = {"UID", "EUID", "GID", "e", "key", "__script__"}


def pod(*env: dict[str, Any], group: str = "containers") -> dict[str, Any]:
    containers = {"containers": [{"name": "m", "image": "x"}]}
    return {"spec": {"restartPolicy": "Never", **containers, group: [{"name": "c", "env": list(env)}]}}


@pytest.mark.parametrize("group", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.b", Unsupported),
        ("with-dash", Unsupported),
        ("1A", Unsupported),
        ("UID", Unsupported),
        ("GID", Unsupported),
        ("key", Unsupported),
        ("PREPEND_PATH", Unsupported),
        ("A B", Unsupported),
        ("A=B", Invalid),
        ("é", Invalid),
        ("A\n", Invalid),
        ("A\0", Invalid),
        ("", Invalid),
        (None, Invalid),
    ],
)
def test_names(group: str, name: object, kind: type) -> None:
    manifest = pod({"name": "OK", "value": "1"}, {"name": name, "value": "secret!"}, group=group)
    (error,) = check_env(manifest)
    assert type(error) is kind
    assert error.field == f"spec.{group}[0].env[1].name"
    assert "secret!" not in str(error)
    assert [str(e) for e in check(manifest).refused] == [str(error)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("secret\r\n", Unsupported),
        ("secret\0", Invalid),
        ("secret\ud800", Invalid),
        ("secret" * 30_000, Unsupported),
        ("é" * 65_530, Unsupported),
    ],
)
def test_values(value: str, kind: type) -> None:
    (error,) = check_env(pod({"name": "A", "value": value}))
    assert type(error) is kind
    assert error.field == "spec.containers[0].env[0].value"
    assert "secret" not in str(error)


def test_the_longest_value_passes_and_one_byte_more_does_not() -> None:
    most = 131071 - len("APPTAINERENV_A=")
    assert check_env(pod({"name": "A", "value": "x" * most})) == []
    (error,) = check_env(pod({"name": "A", "value": "x" * (most + 1)}))
    assert str(most) in error.reason


def test_what_the_runtime_adds_to_a_value_is_noted() -> None:
    checked = check(pod({"name": "LD_LIBRARY_PATH", "value": "/lib"}))
    assert checked.refused == []
    assert [note.split(":")[0] for note in checked.notes] == ["spec.containers[0].env[0]"]


@given(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True).filter(lambda name: name not in TAKEN),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50),
)
def test_all_else_passes(name: str, value: str) -> None:
    assert check_env(pod({"name": name, "value": value.replace("\r\n", "\n")})) == []


@pytest.mark.parametrize("spec", [None, [], {"containers": 1}, {"containers": [1, {"env": [1]}, {"env": 2}]}])
def test_wrong_shapes_are_left_to_the_field_table(spec: object) -> None:
    assert check_env({"spec": spec}) == []
