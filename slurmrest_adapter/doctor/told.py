"""What a node job tells, checked: its file belongs to the job's user, who can write anything into it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from slurmrest_adapter.domain.errors import AdapterError


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class Python(_Part):
    """The interpreter that ran there."""

    path: str
    version: str


class Directory(_Part):
    """The job's directory as the node shows it, and the uid the job had."""

    uid: int
    me: int


class Apptainer(_Part):
    """None where it is not installed, or would not say its version."""

    path: str | None
    version: str | None


class Ran(_Part):
    """A program in a container: its exit code, None for none in time, and its last words."""

    code: int | None
    err: str


class Boxed(Ran):
    """The same in the pod runner's own namespaces; `why` there are none."""

    available: bool
    why: str


class Devices(_Part):
    """Names below /dev."""

    nvidia: list[str]
    control: list[str]
    other: list[str]


class Cache(_Part):
    """The directory for pulled images."""

    path: str
    writable: bool
    free_mib: int


class Findings(_Part):
    """Everything that `node.look` saw."""

    nonce: str | None
    node: str
    python: Python
    directory: Directory
    apptainer: Apptainer
    squashfuse: str | None
    fuse: bool
    sandbox: Boxed
    plain: Ran
    devices: Devices
    settings: dict[str, str] | None
    registries: dict[str, str]
    cache: Cache
    runner: str | None = None


class NoPython(_Part):
    """What the shell told, where there is no Python or an old one; `version` is empty for none."""

    node: str
    version: str
    apptainer_there: bool


class Broken(_Part):
    """The look itself failed."""

    broken: str


Told = Findings | NoPython | Broken
_OBJECT = TypeAdapter(dict[str, Any])


def parse(text: bytes) -> Told:
    """The findings in a job's file.

    Raises:
        AdapterError: it is not what our job writes.
    """
    try:
        raw = _OBJECT.validate_json(text)
        kind: type[Told] = Findings
        if "broken" in raw:
            kind = Broken
        elif raw.get("python") is None:
            kind = NoPython
        return kind.model_validate(raw)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the file"
        raise AdapterError(f"{where}: {fault['msg']}") from None
