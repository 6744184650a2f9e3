"""What the environment of a container may hold, and how an unresolved reference is called.

In a sandbox a container gets every variable as it is. In the runner's plain mode Apptainer injects
them through a shell script of its own. Seen with Apptainer 1.4.5: a name that is no shell identifier
makes *all* of a pod's variables vanish with exit code 0; the names that the script uses itself are
lost or changed, ``key`` and ``e`` among them; LD_LIBRARY_PATH grows; a value loses the ``\\r`` of
each ``\\r\\n``; and U+0080 and U+0081 are marks of its own parser. So such variables are refused by
name before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from slurmrest_adapter.domain.env_names import is_env_name, target
from slurmrest_adapter.domain.errors import Invalid, PodError, Unsupported

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Each was given to a container and came out lost or changed; neighbours such as PWD, IFS, PS1,
# APPTAINER_NAME or SINGULARITY_BIND came out right.
_TAKEN = frozenset(
    {"UID", "EUID", "GID", "e", "key", "__script__", "__exported_env__", "__apptainer_cmd__"}
    | {"PROMPT_COMMAND", "PREPEND_PATH", "APPEND_PATH", "SINGULARITY_ENVIRONMENT"}
    | {"APPTAINER_SHELL", "SINGULARITY_SHELL", "APPTAINER_APPNAME", "SINGULARITY_APPNAME"}
)
# The kernel takes 131071 bytes in one string of the environment; Apptainer's prefix counts too.
_PREFIX = "APPTAINERENV_"
_MAX_STRING = 131071
_PLAIN = "Apptainer (podrunner.mode: plain)"


def check_env(pod: Mapping[str, Any], plain: bool = False) -> list[PodError]:
    """Every variable of a pod that cannot reach its container as it is written, in order.

    `plain`: the site's runner never makes a sandbox.
    Variables with ``valueFrom`` are judged by name alone. Wrong shapes outside ``env`` are left
    to the field table.
    """
    spec = pod.get("spec")
    found: list[PodError] = []
    for group, containers in spec.items() if isinstance(spec, Mapping) else ():
        if group in ("initContainers", "containers") and isinstance(containers, list):
            for index, container in enumerate(containers):
                if isinstance(container, Mapping):
                    found += env_problems(container.get("env"), f"spec.{group}[{index}].env", plain)
    return found


def env_problems(env: object, path: str, plain: bool = False) -> list[PodError]:
    """`check_env` for one container's list."""
    found: list[PodError] = []
    for index, variable in enumerate(env if isinstance(env, list) else ()):
        if isinstance(variable, Mapping):
            problem = variable_problem(variable, f"{path}[{index}]", plain)
            if problem is not None:
                found.append(problem)
    return found


def variable_problem(variable: Mapping[str, Any], path: str, plain: bool = False) -> PodError | None:
    """`check_env` for one variable."""
    return _name_problem(variable.get("name"), path, plain) or _value_problem(variable, path, plain)


def _name_problem(name: object, path: str, plain: bool) -> PodError | None:
    if isinstance(name, str) and name not in _TAKEN and _IDENTIFIER.fullmatch(name):
        return None
    where = f"{path}.name"
    if name is None or name == "":
        return Invalid(where, "is required")
    if not isinstance(name, str):
        return None  # the field table says so
    if not is_env_name(name):
        return Invalid(where, f"{name!r} is no variable name (printable ASCII without '=')")
    if not plain:
        return None
    if name in _TAKEN:
        return Unsupported(where, f"{_PLAIN} uses {name} itself, the container would not get this value")
    return Unsupported(where, f"{name!r} is no shell identifier; {_PLAIN} carries no other names")


def _value_problem(variable: Mapping[str, Any], path: str, plain: bool) -> PodError | None:
    """Values may be secrets: the reason never shows one."""
    source = variable.get("valueFrom")
    if isinstance(source, Mapping) and all(reference is None for reference in source.values()):
        return Invalid(f"{path}.valueFrom", "names no source")
    value = variable.get("value")
    if not isinstance(value, str):
        return None
    where, name = f"{path}.value", variable["name"]
    if plain and name == "LD_LIBRARY_PATH" and value:
        return Unsupported(where, f"{_PLAIN} appends to {name}")
    prefix = _PREFIX if plain else ""
    short = len(name) + len(value) < _MAX_STRING - 2 * len(_PREFIX)
    if short and value.isascii() and "\0" not in value and "\r" not in value:
        return None  # nearly all of them; the name was found to be ASCII before
    try:
        size = len(f"{prefix}{name}=".encode()) + len(value.encode())
    except UnicodeEncodeError:
        return Invalid(where, f"the value of {name} is no Unicode text (half a surrogate pair)")
    if "\0" in value:
        return Invalid(where, f"the value of {name} holds a NUL character, which no process can be given")
    if plain and "\r\n" in value:
        return Unsupported(where, f"the value of {name} holds '\\r\\n'; {_PLAIN} would lose the '\\r'")
    if plain and ("\x80" in value or "\x81" in value):
        return Unsupported(where, f"the value of {name} holds U+0080 or U+0081, at which {_PLAIN} breaks off")
    if size > _MAX_STRING:
        most = _MAX_STRING - len(f"{prefix}{name}=")
        return Unsupported(where, f"the value of {name} is longer than the {most} bytes a node can take")
    return None


def words(key: str) -> Callable[[Any], str]:
    """Names an unresolved reference: what it points at, never what stands there."""

    def reason(value: Any) -> str:
        return f"not resolved: {target(key, value)}"

    return reason
