"""The part of a volume that a container mounts: ``subPath``, or ``subPathExpr`` with its variables.

A kubelet finds out what is wrong with it when it makes the container, which then waits
(`CreateContainerConfigError`); so vk-provider looks at it before anything is submitted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from slurmrest_adapter.domain import expand
from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.pod import optional


def of_mount(mount: Mapping[str, Any], where: str, env: Mapping[str, str]) -> str:
    """The path below the volume, "" for all of it.

    Args:
        mount: one of a container's ``volumeMounts``; `where` is its path in the pod.
        env: the container's variables, expanded.

    Raises:
        Invalid: a variable that is not there, a path that leads out of the volume.
    """
    given = {key: optional(mount.get(key), f"{where}.{key}") for key in ("subPath", "subPathExpr")}
    if all(given.values()):
        raise Invalid(f"{where}.subPathExpr", "subPath is given too")
    key = "subPathExpr" if given["subPathExpr"] else "subPath"
    sub, where = given[key], f"{where}.{key}"
    if not sub:
        return ""
    if key == "subPathExpr":
        missing = expand.unknown(sub, env)
        if missing:
            raise Invalid(where, f"there is no variable {', '.join(missing)} in env")
        sub = expand.text(sub, env)
        if "`" in sub:  # what a shell would run
            raise Invalid(where, "holds a backtick")
        if not sub:
            raise Invalid(where, "is empty after it is expanded")
    path = descending(sub, where)
    return "" if path == "." else path


def descending(path: str, where: str) -> str:
    """A path that stays below where it starts, made normal; raises Invalid."""
    if path.startswith("/"):
        raise Invalid(where, f"{path!r} must be relative")
    if ".." in path.split("/"):
        raise Invalid(where, f"{path!r} must not contain '..'")
    return posixpath.normpath(path)
