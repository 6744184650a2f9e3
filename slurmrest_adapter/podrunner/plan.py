"""Read the pod's plan, strictly: whatever does not fit is an error that names the field."""

import binascii
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import logs, process

SCHEMA = 1
# The first of each is what counts when the plan does not say.
PULL_POLICIES = ("IfNotPresent", "Always", "Never")
RESTART_POLICIES = ("Never", "Always", "OnFailure")
MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
MESSAGE_PATH = "/dev/termination-log"
HOST_TYPES = (
    "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice",
)  # fmt: skip
MODES = ("auto", "sandbox", "plain")


class PlanError(ValueError):
    """The plan cannot be followed; the message names the field, never its value (it may be secret)."""


class File(NamedTuple):
    """One file of a volume: its path in it, its permission bits, its content."""

    path: str
    mode: int
    data: bytes


class Volume(NamedTuple):
    """A volume; `files` is None for an empty directory, of at most `size` bytes if not None.

    `host_path`: it is this file or directory of the node, which must be what `host_type` says and lie
    in one of `host_within`, wherever links lead; None allows every place.
    """

    name: str
    files: Optional[List[File]]
    memory: bool
    size: Optional[int]
    host_path: Optional[str] = None
    host_type: str = ""
    host_within: Optional[List[str]] = None


class Mount(NamedTuple):
    """A volume, or with `sub_path` a part of it, at an absolute path of a container."""

    volume: str
    path: str
    read_only: bool
    sub_path: str


class ContainerPlan(NamedTuple):
    """One container as the adapter resolved it; None in command or args means "not given"."""

    name: str
    image: str
    init: bool
    command: Optional[List[str]]
    args: Optional[List[str]]
    env: List[Tuple[str, str]]
    working_dir: Optional[str]
    gpus: List[int]
    pull_policy: str
    mounts: List[Mount]
    read_only_root: bool = False
    restart_policy: str = "Never"
    sidecar: bool = False  # an init container that runs on beside the others
    message_path: str = MESSAGE_PATH
    message_policy: str = "File"


class Dns(NamedTuple):
    """What is in resolv.conf; with `node` it follows what the node's own says."""

    node: bool
    nameservers: List[str]
    searches: List[str]
    options: List[str]


class Plan(NamedTuple):
    """One pod: times in seconds; `containers` has the init containers first.

    `once`: no job will need the plan again when the pod has ended. `image_retries`: an image that
    cannot be had is tried again where the container's policy allows it.
    """

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
    volumes: List[Volume]
    once: bool
    host_aliases: Sequence[Tuple[str, List[str]]] = ()
    dns: Optional[Dns] = None
    backoff_base: float = 10.0
    max_idle: Optional[float] = None  # of a pod with GPUs that only waits for its next start
    image_retries: bool = False
    log_size: int = logs.SIZE  # bytes of one file of a container's log
    log_files: int = logs.FILES


def load(path: str) -> Plan:
    """Read and check the plan at `path`; raises PlanError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as stream:
            text = stream.read()
    except OSError as error:
        raise PlanError("plan.json: {}".format(error.strerror))
    return decode(text)


def decode(text: bytes) -> Plan:
    """Read and check a plan's JSON; raises PlanError."""

    def read() -> List[Any]:
        import json  # large, and not needed again

        try:
            return [json.loads(text.decode("utf-8"))]
        except (ValueError, RecursionError):
            return []

    found = process.apart(read)
    if not found:
        raise PlanError("not valid JSON")
    return parse(found[0])


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
    given = _list(data.get("volumes") or [], "volumes")
    volumes = [_volume(item, "volumes[{}]".format(index)) for index, item in enumerate(given)]
    known = [volume.name for volume in volumes]
    if len(set(known)) != len(known):
        raise PlanError("volumes: two have the same name")
    for container in containers:
        for mount in container.mounts:
            if mount.volume not in known:
                raise PlanError("containers: {} mounts a volume that is not there".format(container.name))
    return Plan(
        uid=_text(data, "uid", ""),
        namespace=_text(data, "namespace", ""),
        name=_text(data, "name", ""),
        hostname=data.get("hostname") or "",
        grace_seconds=_seconds(data.get("grace_seconds", 30), "grace_seconds"),
        deadline_seconds=_optional_seconds(data, "deadline_seconds"),
        insecure_registries=_strings(runtime.get("insecure_registries") or [], "runtime.insecure_registries"),
        cache=cache,
        mode=mode,
        containers=containers,
        volumes=volumes,
        once=data.get("once") is True,
        host_aliases=[_alias(item) for item in _list(data.get("host_aliases") or [], "host_aliases")],
        dns=None if data.get("dns") is None else _dns(data["dns"]),
        backoff_base=_seconds(data.get("backoff_base_seconds", 10), "backoff_base_seconds"),
        max_idle=_optional_seconds(data, "max_idle_seconds"),
        image_retries=data.get("image_retries") is True,
        log_size=_least(data.get("log_max_bytes", logs.SIZE), 1, "log_max_bytes"),
        log_files=_least(data.get("log_max_files", logs.FILES), 2, "log_max_files"),
    )


def _optional_seconds(data: Dict[str, Any], key: str) -> Optional[float]:
    return None if data.get(key) is None else _seconds(data[key], key)


def _alias(item: Any) -> Tuple[str, List[str]]:
    if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], str):
        raise PlanError("host_aliases: must be pairs of an address and its names")
    return item[0], _strings(item[1], "host_aliases")


def _dns(item: Any) -> Dns:
    if not isinstance(item, dict):
        raise PlanError("dns: must be an object")
    lists = [_strings(item.get(key) or [], "dns." + key) for key in ("nameservers", "searches", "options")]
    return Dns(item.get("node") is not False, *lists)


def _container(item: Any, where: str) -> ContainerPlan:
    if not isinstance(item, dict):
        raise PlanError(where + ": must be an object")
    name = _text(item, "name", where + ".")
    # The name becomes a directory of logs.
    if "/" in name or name in (".", ".."):
        raise PlanError(where + ".name: must not be a path")
    init, sidecar = bool(item.get("init", False)), item.get("sidecar") is True
    if sidecar and not init:
        raise PlanError(where + ".sidecar: only an init container can be one")
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
        init=init,
        command=_optional_strings(item.get("command"), where + ".command"),
        args=_optional_strings(item.get("args"), where + ".args"),
        env=env,
        working_dir=working_dir,
        gpus=gpus,
        pull_policy=_one_of(item, "pull_policy", PULL_POLICIES, where),
        mounts=[
            _mount(mount, "{}.mounts[{}]".format(where, index))
            for index, mount in enumerate(_list(item.get("mounts") or [], where + ".mounts"))
        ],
        read_only_root=item.get("read_only_root") is True,
        restart_policy=_one_of(item, "restart_policy", RESTART_POLICIES, where),
        sidecar=sidecar,
        message_path=_absolute(item, "message_path", where, MESSAGE_PATH),
        message_policy=_one_of(item, "message_policy", MESSAGE_POLICIES, where),
    )


def _one_of(item: Dict[str, Any], key: str, values: Tuple[str, ...], where: str) -> str:
    value = item.get(key) or values[0]
    if value not in values:
        raise PlanError("{}.{}: must be one of {}".format(where, key, ", ".join(values)))
    return str(value)


def _absolute(item: Dict[str, Any], key: str, where: str, default: str = "") -> str:
    path = _text({key: item.get(key) or default}, key, where + ".")
    if not path.startswith("/") or os.path.normpath(path) != path or path == "/":
        raise PlanError("{}.{}: must be absolute, normal and not the root".format(where, key))
    return path


def _mount(item: Any, where: str) -> Mount:
    if not isinstance(item, dict):
        raise PlanError(where + ": must be an object")
    path = _absolute(item, "path", where)
    sub_path = item.get("sub_path") or ""
    if sub_path:
        sub_path = _below(item, "sub_path", where + ".")
    return Mount(_text(item, "volume", where + "."), path, bool(item.get("read_only", False)), sub_path)


def _volume(item: Any, where: str) -> Volume:
    if not isinstance(item, dict):
        raise PlanError(where + ": must be an object")
    name = _text(item, "name", where + ".")
    if "/" in name or name in (".", ".."):  # it becomes a directory
        raise PlanError(where + ".name: must not be a path")
    size = item.get("size_bytes")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size <= 0):
        raise PlanError(where + ".size_bytes: must be null or a number of bytes")
    if item.get("medium") not in (None, "", "Memory"):
        raise PlanError(where + ".medium: must be empty or Memory")
    files = None
    if item.get("files") is not None:
        files = [
            _file(file, "{}.files[{}]".format(where, index))
            for index, file in enumerate(_list(item["files"], where + ".files"))
        ]
    host, kind = item.get("host_path"), item.get("host_type") or ""
    if host is not None and not (isinstance(host, str) and host.startswith("/") and "\0" not in host):
        raise PlanError(where + ".host_path: must be null or an absolute path")
    if kind not in HOST_TYPES:
        raise PlanError(where + ".host_type: must be one of " + ", ".join(HOST_TYPES))
    within = item.get("host_within")
    if within is not None:
        within = _list(within, where + ".host_within")
        if not all(isinstance(path, str) and path.startswith("/") and "\0" not in path for path in within):
            raise PlanError(where + ".host_within: must be null or absolute paths")
    return Volume(name, files, item.get("medium") == "Memory", size, host, kind, within)


def _file(item: Any, where: str) -> File:
    if not isinstance(item, dict):
        raise PlanError(where + ": must be an object")
    mode = item.get("mode")
    if not isinstance(mode, int) or isinstance(mode, bool) or not 0 <= mode <= 0o777:
        raise PlanError(where + ".mode: must be a number from 0 to 511")
    text = item.get("data", "")
    try:
        data = binascii.a2b_base64(text)
        # It passes over what is no base64.
        valid = binascii.b2a_base64(data, newline=False).decode("ascii") == text
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise PlanError(where + ".data: must be base64")
    return File(_below(item, "path", where + "."), mode, data)


def _below(data: Dict[str, Any], key: str, prefix: str) -> str:
    path = _text(data, key, prefix)
    if path.startswith("/") or ".." in path.split("/") or os.path.normpath(path) != path:
        raise PlanError(prefix + key + ": must be relative and normal")
    return path


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


def _least(value: Any, least: int, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PlanError("{}: must be a whole number, {} or more".format(where, least))
    return value


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise PlanError(where + ": must be a number of seconds, not negative")
    return float(value)
