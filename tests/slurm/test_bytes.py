"""Command, arguments and environment arrive in the container byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.slurm.conftest import PYTHON, Cli, Lab

pytestmark = pytest.mark.slurm

HOSTILE = {
    "quotes": """it's "quoted" 'twice' \\" \\'""",
    "substitution": "$(id) `id` ${HOME} $HOME $((1+1)) !! ~",
    "newlines": "one\ntwo\n\nfour\n",
    "leading newline": "\nfirst",
    "tabs": "\ta\tb\t",
    "spaces": "  two  spaces  ",
    "unicode": "grüße 世界 🚀 \u0301 \u202e",
    "dash": "-rf",
    "double dash": "--",
    "option": "--env=X=Y",
    "equals": "=a=b==",
    "empty": "",
    "globs": "* ? [a-z] {a,b}",
    "redirections": "; rm x & y | z > w < v && u || t #",
    "backslashes": "\\n \\\\ \\",
    "controls": "".join(map(chr, range(1, 32))),
    "percent": "%s %d %%",
    "commas and colons": "a,b:c;d",
    "heredoc": "PODRUNNER\nEOF\n",
    "json": '{"a": ["b", null]}',
    "large": "0123456789abcdef" * 4096,
}
# What the containers print: everything as JSON, escaped to plain characters.
PRINT = "import json,os,sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def as_written(value: str) -> str:
    """How a manifest must write a value so that Kubernetes' own $(NAME) expansion leaves it."""
    return value.replace("$", "$$")


def test_everything_arrives(cli: Cli, pod: Callable[..., dict[str, Any]], lab: Lab) -> None:
    values = list(HOSTILE.values())
    env = [{"name": f"V{index}", "value": as_written(value)} for index, value in enumerate(values)]
    made = pod(
        by_args={
            "image": f"{lab.registry}/{PYTHON}",
            "command": ["python3", "-c", PRINT],
            "args": [as_written(value) for value in values],
            "env": env,
        },
        by_command={
            "image": f"{lab.registry}/{PYTHON}",
            "command": ["python3", "-c", PRINT, *map(as_written, values)],
            "env": env,
        },
    )
    done = cli.run(made)
    assert done.code == 0, done.out
    uid = done.json()["uid"]
    for container in ("by-args", "by-command"):
        argv, environ = json.loads(cli("logs", uid, "-c", container).out)
        arrived = {name: argv[index] for index, name in enumerate(HOSTILE)}
        assert arrived == HOSTILE
        arrived = {name: environ[f"V{index}"] for index, name in enumerate(HOSTILE)}
        assert arrived == HOSTILE
        # Nothing of Slurm's or the node's own environment comes along.
        assert not [name for name in environ if name.startswith(("SLURM", "SRA_"))]


def test_references_are_expanded_as_the_kubelet_does(
    cli: Cli, pod: Callable[..., dict[str, Any]], lab: Lab
) -> None:
    made = pod(
        main={
            "image": f"{lab.registry}/{PYTHON}",
            "command": ["python3", "-c", PRINT, "$(GREETING)", "$$(GREETING)", "$(MISSING)", "$(FROM_MAP)"],
            "env": [
                {"name": "WHO", "value": "world"},
                {"name": "GREETING", "value": "hello $(WHO)"},
                {"name": "FROM_MAP", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "raw"}}},
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "password"}}},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "S_"}],
        }
    )
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "physics"},
        "data": {"raw": "$(WHO) $$ `id`"},
    }
    login = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login", "namespace": "physics"},
        "stringData": {"password": "p'a\"s$s"},
    }
    done = cli.run(made, settings, login)
    assert done.code == 0, done.out + done.err
    argv, environ = json.loads(cli("logs", done.json()["uid"]).out)
    assert argv == ["hello world", "$(GREETING)", "$(MISSING)", "$(WHO) $$ `id`"]
    assert environ["PASSWORD"] == "p'a\"s$s"
    assert environ["POD"] == "test"
    assert environ["S_raw"] == "$(WHO) $$ `id`"


def test_entrypoint_and_cmd(cli: Cli, pod: Callable[..., dict[str, Any]], lab: Lab) -> None:
    image = f"{lab.registry}/lab/entry:1"
    made = pod(
        neither={"image": image},
        args_only={"image": image, "args": ["echo", "mine"]},
        command_only={"image": image, "command": ["echo", "just me"]},
    )
    done = cli.run(made)
    assert done.code == 0, done.out
    uid = done.json()["uid"]
    assert "--fixed arg" in cli("logs", uid, "-c", "neither").out
    mine = cli("logs", uid, "-c", "args-only").out
    assert "--fixed arg" in mine
    assert mine.rstrip().endswith("mine")
    assert cli("logs", uid, "-c", "command-only").out == "just me\n"


def test_binary_output_arrives_byte_for_byte(cli: Cli, pod: Callable[..., dict[str, Any]], lab: Lab) -> None:
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 300)"
    made = pod(main={"image": f"{lab.registry}/{PYTHON}", "command": ["python3", "-c", script]})
    done = cli.run(made)
    assert done.code == 0, done.out
    printed = cli("logs", done.json()["uid"]).out.encode("utf-8", "surrogateescape")
    assert printed == bytes(range(256)) * 300
