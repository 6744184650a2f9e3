"""The site's configuration: one YAML file, overridden by the environment.

`load` reads ``--config FILE``, else ``$SLURMREST_CONFIG``, else /etc/slurmrest-adapter/config.yaml.
``SLURMREST_<SECTION>__<KEY>`` overrides a key (``SLURMREST_SLURM__POOL=4``); lists and maps are
given as JSON there. A key nobody knows stops the start and names the nearest known one: a typo
that silently keeps a default is how a site finds out much later.
"""

from __future__ import annotations

import difflib
import os
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from slurmrest_adapter.domain import quantities
from slurmrest_adapter.domain.errors import ConfigError, Invalid

DEFAULT_PATH = Path("/etc/slurmrest-adapter/config.yaml")
ENV_PREFIX = "SLURMREST_"
T = TypeVar("T")
# In the prefix's name space, but not keys of the file.
_NOT_KEYS = frozenset({"SLURMREST_CONFIG"})


def _quantity(read: Callable[[Any, str], T], value: Any, kind: str) -> T:
    """What `read` makes of the value, its refusal as pydantic wants one."""
    try:
        return read(value, kind)
    except Invalid as error:
        raise ValueError(error.reason) from error


def _seconds(value: Any) -> int:
    return _quantity(quantities.duration, value, "duration")


def _bytes(value: Any) -> int:
    return int(_quantity(quantities.parse, value, "size"))


def _memory(value: str) -> str:
    _quantity(quantities.parse, value, "memory")
    return value


def _endpoint(value: str) -> str:
    if not re.fullmatch(r"https?://[^/\s]+(/[^\s?#]*)?|unix:///[^\s]+", value):
        raise ValueError("an endpoint is http://HOST:PORT, https://HOST:PORT or unix:///PATH")
    return value.rstrip("/")


_EVENTS = re.compile(
    r"http://(\[[0-9A-Fa-f:.]+\]|[^/\s:\[\]]+):[1-9]\d{0,4}(/[A-Za-z0-9/_.~%-]*)?|unix:///[!-~]+"
)


def _events_address(value: str) -> str:
    if not _EVENTS.fullmatch(value):
        raise ValueError("the address of events is http://HOST:PORT/PATH or unix:///PATH")
    return value


Seconds = Annotated[int, BeforeValidator(_seconds)]
Memory = Annotated[str, AfterValidator(_memory)]
Endpoint = Annotated[str, AfterValidator(_endpoint)]
EventsAddress = Annotated[str, AfterValidator(_events_address)]


class _Loader(yaml.SafeLoader):
    """A key given twice is a mistake: which of the two was meant, nobody knows."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, key in enumerate(keys):
            if key in keys[:at]:
                where = f"line {node.value[at][0].start_mark.line + 1}"
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice, {where}")
        return super().construct_mapping(node, deep=deep)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Token(_Section):
    """Where slurmrestd's token comes from."""

    source: Literal["hs256", "file", "static", "none"] = "none"
    key_file: Path | None = None
    file: Path | None = None
    token: str | None = Field(default=None, repr=False)
    lifetime_s: int = Field(default=600, ge=10)


class Timeouts(_Section):
    """Seconds; Slurm's own message time-out is 10."""

    connect_s: float = Field(default=5, gt=0)
    read_s: float = Field(default=30, gt=0)


class Slurm(_Section):
    """How slurmrestd is reached."""

    endpoints: tuple[Endpoint, ...] = ("http://127.0.0.1:6820",)
    api_version: str = Field(default="auto", pattern=r"^(auto|v0\.0\.\d+)$")
    token: Token = Token()
    service_user: str | None = None
    timeouts: Timeouts = Timeouts()
    pool: int = Field(default=8, ge=1, le=64)
    poll_s: float = Field(default=1, ge=0.1, le=300)


class MapLine(_Section):
    """One line of the identity map: which pods run as whom."""

    namespace: str
    service_account: str = "*"
    user: str
    account: str | None = None
    qos: str | None = None
    partition: str | None = None
    uid: int | None = None
    gid: int | None = None


def _run_as_user(value: Any) -> Any:
    if value == "map":
        raise ValueError("'map' is not carried yet: 'ignore' or 'refuse' the users that pods choose")
    return value


class Identity(_Section):
    """Default deny: a pod that no line matches is refused."""

    map: tuple[MapLine, ...] = ()
    run_as_user: Annotated[Literal["ignore", "refuse"], BeforeValidator(_run_as_user)] = "ignore"
    min_uid: int = 1000


class Defaults(_Section):
    """What a pod gets when it does not say."""

    partition: str | None = None
    cpus: int = Field(default=1, ge=1)
    memory: Memory = "1Gi"
    time_limit: Seconds | None = 3600
    requeue: bool = False


class Gpu(_Section):
    """Kubernetes resources and products → GRES names and types."""

    resources: dict[str, str] = {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
    types: dict[str, str] = {}
    mismatch: Literal["refuse", "pod", "flags"] = "refuse"
    max_idle: Seconds = 1800


class Plan(_Section):
    """How the plan reaches the node."""

    delivery: Literal["shared", "environment"] = "shared"


class Images(_Section):
    """Where images come from on the nodes."""

    insecure_registries: tuple[str, ...] = ()
    map: dict[str, str] = {}
    cache: str | None = None
    prefetch: Literal["job"] = "job"


def _node_path(value: str) -> str:
    if not value.startswith("/") or posixpath.normpath(value) != value:
        raise ValueError("a path on the nodes is absolute and has no '..', '//' or '/' at its end")
    return value


NodePath = Annotated[str, AfterValidator(_node_path)]


class PodRunner(_Section):
    """The program that runs on the node."""

    path: NodePath | None = None
    mode: Literal["auto", "sandbox", "plain"] = "auto"
    python: str = Field(default="python3", pattern=r"^[A-Za-z0-9_./+-]+$")
    backoff_base_s: float = Field(default=10, gt=0, le=3600)
    log_max_size: Annotated[int, BeforeValidator(_bytes), Field(ge=64 * 2**10, le=2**40)] = 10 * 2**20
    log_max_files: int = Field(default=5, ge=2, le=100)


Claim = Annotated[str, Field(pattern=r"^[a-z0-9.-]+/[a-z0-9.-]+$")]


class Policy(_Section):
    """What the site lets pods do."""

    shell_annotations: Literal["deny", "allow"] = "deny"
    host_paths: tuple[NodePath, ...] = ()


class Volumes(_Section):
    """What stands for Kubernetes' storage on the nodes: claim (namespace/name) → directory."""

    pvc: dict[Claim, NodePath] = {}


class Spank(_Section):
    """The SPANK plugin's reports: the same address and key as in plugstack.conf."""

    enabled: bool = False
    events: EventsAddress | None = None
    key_file: Path | None = None


class Listen(_Section):
    """The plugin API and the admin API."""

    plugin: str = "unix:///run/slurmrest-adapter/plugin.sock"
    admin: str | None = None
    allowed_uids: tuple[int, ...] = (0,)
    auth: Literal["token", "none"] = "token"
    token_file: Path | None = None


class Node(_Section):
    """The virtual node that vk-provider registers."""

    name: str = "slurm"
    kubeconfig: Path | None = None
    kubelet_port: int = 10250
    taint: str = "virtual-node.interlink/no-schedule"


class Settings(BaseSettings):
    """The whole file. Frozen: what was read at the start holds until the end."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=ENV_PREFIX, env_nested_delimiter="__"
    )

    cluster: str = Field(default="slurm", pattern=r"^[A-Za-z0-9._-]{1,40}$")
    slurm: Slurm = Slurm()
    identity: Identity = Identity()
    defaults: Defaults = Defaults()
    gpu: Gpu = Gpu()
    plan: Plan = Plan()
    state_dir: Path = Path("/var/lib/slurmrest-adapter")
    shared_dir: Path | None = None
    shared_dir_on_nodes: str | None = None
    images: Images = Images()
    podrunner: PodRunner = PodRunner()
    policy: Policy = Policy()
    volumes: Volumes = Volumes()
    spank: Spank = Spank()
    listen: Listen = Listen()
    node: Node = Node()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment over the file; no .env and no secrets directory."""
        return env_settings, init_settings


def load(path: Path | None = None) -> Settings:
    """Read the configuration.

    Args:
        path: the file that ``--config`` names; it must exist then, as must ``$SLURMREST_CONFIG``.
            Without either, a missing default file means the defaults.

    Raises:
        ConfigError: one line that names the file and the key.
    """
    asked = path or (Path(os.environ["SLURMREST_CONFIG"]) if os.environ.get("SLURMREST_CONFIG") else None)
    source = asked or DEFAULT_PATH
    raw: Any = {}
    try:
        raw = yaml.load(source.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506  a SafeLoader
    except FileNotFoundError as error:
        if asked:
            raise ConfigError(f"configuration file {source} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"configuration file {source} cannot be read: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"configuration file {source} is not YAML: {_one_line(error)}") from error
    raw = {} if raw is None else raw
    if not isinstance(raw, dict):
        raise ConfigError(f"configuration file {source}: the top level must be a map of sections")
    strange = next((key for key in raw if not isinstance(key, str)), None)
    if strange is not None:
        raise ConfigError(f"configuration file {source}: {strange!r}: unknown key; keys are words")
    _check_environment()
    try:
        return Settings(**raw)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_explain(error)}") from error
    except SettingsError as error:
        # A list or map in the environment that is no JSON; the value may be a token, so it stays out.
        raise ConfigError(f"{_variables(error)}: lists and maps are given as JSON") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _check_environment() -> None:
    known = {f"{ENV_PREFIX}{name}".upper() for name in Settings.model_fields}
    for name in os.environ:
        if not name.upper().startswith(ENV_PREFIX) or name in _NOT_KEYS:
            continue
        section = name.upper().split("__", 1)[0]
        if section not in known:
            near = difflib.get_close_matches(section, sorted(known), 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"environment variable {name} is no configuration key{hint}")


def _variables(error: SettingsError) -> str:
    """The environment variables that can be meant; the error names only their section."""
    section = re.search(r'field "(\w+)"', str(error))
    prefix = f"{ENV_PREFIX}{section[1] if section else ''}".upper()
    return " or ".join(sorted(name for name in os.environ if name.upper().startswith(prefix)))


def _explain(error: ValidationError) -> str:
    """The first fault in one line: the key's path, the reason, the nearest known key."""
    faults = error.errors(include_input=False, include_url=False)
    # A misspelt key first: it is also why another one seems to be missing.
    first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        plain = {"tuple_type": "a list is needed", "model_type": "a map of keys is needed"}
        return f"{path}: {plain.get(first['type'], first['msg'].removeprefix('Value error, '))}"
    known = sorted(_section(first["loc"][:-1]).model_fields)
    near = difflib.get_close_matches(str(first["loc"][-1]), known, 1, 0.4)
    hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
    return f"{path}: unknown key; {hint}"


def _section(path: tuple[int | str, ...]) -> type[BaseModel]:
    """The model that stands at a path of keys and list positions."""
    model: type[BaseModel] = Settings
    for part in path:
        if isinstance(part, int):
            continue
        model = next(_models(model.model_fields[str(part)].annotation), model)
    return model


def _models(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
