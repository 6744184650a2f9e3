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
    if kind is Unsupported:
        assert check_env(manifest) == []
    (error,) = check_env(manifest, plain=True)
    assert type(error) is kind
    assert error.field == f"spec.{group}[0].env[1].name"
    assert "secret!" not in str(error)
    assert [str(e) for e in check(manifest, plain=True).refused] == [str(error)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("secret\r\n", Unsupported),
        ("secret\x80", Unsupported),
        ("secret\x81", Unsupported),
        ("secret\0", Invalid),
        ("secret\ud800", Invalid),
        ("secret" * 30_000, Unsupported),
        ("é" * 65_530, Unsupported),
    ],
)
def test_values(value: str, kind: type) -> None:
    (error,) = check_env(pod({"name": "A", "value": value}), plain=True)
    assert type(error) is kind
    assert error.field == "spec.containers[0].env[0].value"
    assert "secret" not in str(error)


@pytest.mark.parametrize(("plain", "prefix"), [(True, "APPTAINERENV_A="), (False, "A=")])
def test_the_longest_value_passes_and_one_byte_more_does_not(plain: bool, prefix: str) -> None:
    most = 131071 - len(prefix)
    assert check_env(pod({"name": "A", "value": "x" * most}), plain) == []
    (error,) = check_env(pod({"name": "A", "value": "x" * (most + 1)}), plain)
    assert str(most) in error.reason


def test_what_apptainer_adds_to_is_refused_where_it_would() -> None:
    manifest = pod({"name": "LD_LIBRARY_PATH", "value": "/lib"})
    assert check(manifest).refused == []
    where = [error.field for error in check(manifest, plain=True).refused]
    assert where == ["spec.containers[0].env[0].value"]
    assert check(pod({"name": "LD_LIBRARY_PATH", "value": ""}), plain=True).refused == []


@given(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True).filter(lambda name: name not in TAKEN),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50),
)
def test_all_else_passes(name: str, value: str) -> None:
    assert check_env(pod({"name": name, "value": value})) == []
    for taken, stays in (("\r\n", "\n"), ("\x80", ""), ("\x81", "")):
        value = value.replace(taken, stays)
    if name != "LD_LIBRARY_PATH":
        assert check_env(pod({"name": name, "value": value}), plain=True) == []


@pytest.mark.parametrize("spec", [None, [], {"containers": 1}, {"containers": [1, {"env": [1]}, {"env": 2}]}])
def test_wrong_shapes_are_left_to_the_field_table(spec: object) -> None:
    assert check_env({"spec": spec}) == []
