"""Read the pod's plan, strictly: whatever does not fit is an error that names the field."""

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

SCHEMA = 1
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
MODES = ("auto", "sandbox", "plain")


class PlanError(ValueError):
    """The plan cannot be followed; the message names the field, never its value (it may be secret)."""


class ContainerPlan(NamedTuple):
    """One container as the sidecar resolved it; None in command or args means "not given"."""

    name: str
    image: str
    init: bool
    command: Optional[List[str]]
    args: Optional[List[str]]
    env: List[Tuple[str, str]]
    working_dir: Optional[str]
    gpus: List[int]
    pull_policy: str


class Plan(NamedTuple):
    """One pod: grace and deadline in seconds; `containers` has the init containers first."""

    uid: str
    namespace: str
    name: str
    hostname: str
    grace_seconds: float
    deadline_seconds: Optional[float]
    insecure_registries: List[str]
    cache: Optional[str]
    mode: str
    containers: List[ContainerPlan]


def load(path: str) -> Plan:
    """Read and check the plan at `path`; raises PlanError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as stream:
            data = json.loads(stream.read().decode("utf-8"))
    except OSError as error:
        raise PlanError("plan.json: {}".format(error.strerror))
    except ValueError:
        raise PlanError("plan.json: not valid JSON")
    return parse(data)


def parse(data: Any) -> Plan:
    """Check a decoded plan; raises PlanError. Keys this version does not know are ignored."""
    if not isinstance(data, dict):
        raise PlanError("plan: must be an object")
    if data.get("schema") != SCHEMA:
        raise PlanError("schema: this runner reads version {}".format(SCHEMA))
    runtime = data.get("runtime")
    if not isinstance(runtime, dict):
        raise PlanError("runtime: must be an object")
    if runtime.get("name") != "apptainer":
        raise PlanError("runtime.name: this runner has apptainer only")
    mode = runtime.get("mode") or "auto"
    if mode not in MODES:
        raise PlanError("runtime.mode: must be one of " + ", ".join(MODES))
    cache = runtime.get("cache")
    if cache is not None and not (isinstance(cache, str) and cache.startswith("/")):
        raise PlanError("runtime.cache: must be null or an absolute path")
    raw = data.get("containers")
    if not isinstance(raw, list) or not raw:
        raise PlanError("containers: must be a list with at least one container")
    containers = [_container(item, "containers[{}]".format(index)) for index, item in enumerate(raw)]
    names = [container.name for container in containers]
    if len(set(names)) != len(names):
        raise PlanError("containers: two have the same name")
    order = [container.init for container in containers]
    if order != sorted(order, reverse=True):
        raise PlanError("containers: init containers must come first")
    return Plan(
        uid=_text(data, "uid", ""),
        namespace=_text(data, "namespace", ""),
        name=_text(data, "name", ""),
        hostname=data.get("hostname") or "",
        grace_seconds=_seconds(data.get("grace_seconds", 30), "grace_seconds"),
        deadline_seconds=(
            None
            if data.get("deadline_seconds") is None
            else _seconds(data["deadline_seconds"], "deadline_seconds")
        ),
        insecure_registries=_strings(runtime.get("insecure_registries") or [], "runtime.insecure_registries"),
        cache=cache,
        mode=mode,
        containers=containers,
    )


def _container(item: Any, where: str) -> ContainerPlan:
    if not isinstance(item, dict):
        raise PlanError(where + ": must be an object")
    name = _text(item, "name", where + ".")
    # The name becomes a directory of logs.
    if "/" in name or name in (".", ".."):
        raise PlanError(where + ".name: must not be a path")
    policy = item.get("pull_policy") or "IfNotPresent"
    if policy not in PULL_POLICIES:
        raise PlanError(where + ".pull_policy: must be one of " + ", ".join(PULL_POLICIES))
    env = []
    for index, pair in enumerate(_list(item.get("env") or [], where + ".env")):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise PlanError("{}.env[{}]: must be a pair of strings".format(where, index))
        if "\0" in pair[0] + pair[1]:
            raise PlanError("{}.env[{}]: holds a NUL character".format(where, index))
        env.append((pair[0], pair[1]))
    gpus = _list(item.get("gpus") or [], where + ".gpus")
    for position in gpus:
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise PlanError(where + ".gpus: must be a list of positions from 0")
    working_dir = item.get("working_dir")
    if working_dir is not None and not isinstance(working_dir, str):
        raise PlanError(where + ".working_dir: must be null or a string")
    return ContainerPlan(
        name=name,
        image=_text(item, "image", where + "."),
        init=bool(item.get("init", False)),
        command=_optional_strings(item.get("command"), where + ".command"),
        args=_optional_strings(item.get("args"), where + ".args"),
        env=env,
        working_dir=working_dir,
        gpus=gpus,
        pull_policy=policy,
    )


def _text(data: Dict[str, Any], key: str, prefix: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value or "\0" in value:
        raise PlanError(prefix + key + ": must be a non-empty string")
    return value


def _list(value: Any, where: str) -> List[Any]:
    if not isinstance(value, list):
        raise PlanError(where + ": must be a list")
    return value


def _strings(value: Any, where: str) -> List[str]:
    for index, item in enumerate(_list(value, where)):
        if not isinstance(item, str) or "\0" in item:
            raise PlanError("{}[{}]: must be a string without NUL".format(where, index))
    return list(value)


def _optional_strings(value: Any, where: str) -> Optional[List[str]]:
    return None if value is None else _strings(value, where)


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise PlanError(where + ": must be a number of seconds, not negative")
    return float(value)
