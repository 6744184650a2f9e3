"""The field table: what happens to every field of a pod, and the check that applies it.

Kubernetes' API grows and this project carries a part of it. What cannot be carried must not be
dropped in silence, so each field of v1.PodSpec, v1.Container, v1.Volume and of the types inside
them has a row here: *done*, *without effect here* or *refused*. Only what changes a pod's meaning
is refused; what the API server adds to every pod is not. docs/fields.md is this table in prose.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurmrest_adapter.domain.errors import Invalid, PodError, Unsupported
from slurmrest_adapter.translate import fields_env
from slurmrest_adapter.translate.fields_container import CONTAINERS
from slurmrest_adapter.translate.fields_model import Row, Table, Verdict
from slurmrest_adapter.translate.fields_pod import (
    HOST_ALIAS,
    POD_DNS_CONFIG,
    POD_DNS_CONFIG_OPTION,
    POD_OS,
    POD_SPEC,
)
from slurmrest_adapter.translate.fields_security import SECURITY
from slurmrest_adapter.translate.fields_volume import VOLUMES

TABLES: Mapping[str, Table] = {
    "PodSpec": POD_SPEC,
    "PodOS": POD_OS,
    "HostAlias": HOST_ALIAS,
    "PodDNSConfig": POD_DNS_CONFIG,
    "PodDNSConfigOption": POD_DNS_CONFIG_OPTION,
    **VOLUMES,
    **CONTAINERS,
    **SECURITY,
}

_SHAPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "str": (str, "a string"),
    "int": (int, "a whole number"),
    "bool": (bool, "true or false"),
    "list": (list, "a list"),
    "map": (Mapping, "a map"),
    # A string in the schema, but the API takes a number as well.
    "quantity": ((str, int, float), "a quantity such as 1Gi"),
}

# What JSON and YAML make of each shape; anything else is looked at with more care.
_EXACT: Mapping[str, frozenset[type]] = {
    "str": frozenset({str}),
    "int": frozenset({int}),
    "bool": frozenset({bool}),
    "list": frozenset({list}),
    "map": frozenset({dict}),
    "quantity": frozenset({str, int, float}),
}


def _quiet(kind: str, table: Table) -> dict[str, frozenset[type]]:
    """The rows of which nothing is said whatever the value, and nothing lies inside: most of a pod."""
    return {
        key: _EXACT[row.shape]
        for key, row in table.items()
        if not (row.cases or row.kind or row.note or row.identity or row.verdict is Verdict.REFUSED)
        and (kind != "Volume" or key == "name")
    }


_QUIET = {kind: _quiet(kind, table) for kind, table in TABLES.items()}
_DEFAULTS = {
    kind: [(key, row) for key, row in table.items() if row.default is not None]
    for kind, table in TABLES.items()
}
_NONE: frozenset[type] = frozenset()


@dataclass
class Checked:
    """What the field table says of one pod.

    Attributes:
        refused: every field that stops the pod, in the document's order: `Unsupported`, or
            `Invalid` where the value has the wrong shape.
        notes: what was ignored and is worth saying to the pod's author, one line each.
    """

    refused: list[PodError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check(pod: Mapping[str, Any], run_as_user: str = "ignore", plain: bool = False) -> Checked:
    """Hold a pod against the field table.

    Args:
        pod: the raw pod, its references resolved; only ``spec`` is looked at.
        run_as_user: the site's ``identity.run_as_user``: ``ignore`` says in the notes that the
            pod's users and groups have no effect, ``refuse`` refuses them.
        plain: the site's ``podrunner.mode`` is ``plain``, which carries fewer variables. With
            ``auto`` nobody knows before the pod is on its node, and it is refused there.
    """
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        return Checked(refused=[Invalid("spec", "a map is needed")])
    walk = _Walk(run_as_user, plain, spec)
    walk.table("PodSpec", spec, "spec")
    return walk.checked


class _Walk:
    """One walk over one pod."""

    def __init__(self, run_as_user: str, plain: bool, spec: Mapping[str, Any]) -> None:
        self.checked = Checked()
        self._run_as_user = run_as_user
        self._plain = plain
        self._mounts = _mounts(spec)
        self._volumes = {str(v.get("name")): v for v in _maps(spec.get("volumes"))}

    def table(self, kind: str, values: Mapping[str, Any], path: str) -> None:
        """Hold one object against its table, then what is inside it."""
        rows, quiet = TABLES[kind], _QUIET[kind]
        for key, value in values.items():
            if value is None or type(value) in quiet.get(key, _NONE):
                continue
            row = rows.get(key)
            if row is None:
                self._refuse(Unsupported(f"{path}.{key}", _unknown(key, rows)))
            elif not _has_shape(value, row.shape):
                self._refuse(Invalid(f"{path}.{key}", f"{_SHAPES[row.shape][1]} is needed"))
            elif kind == "Volume" and key != "name":
                self._volume(values, key, path, row)
            else:
                self._field(row, value, f"{path}.{key}")
        for key, row in _DEFAULTS[kind]:
            if values.get(key) is None:
                self._field(row, row.default, f"{path}.{key}")

    def _field(self, row: Row, value: Any, path: str) -> None:
        case = next((case for case in row.cases if case.fits(value)), None) if row.cases else None
        verdict, why, note = (case.verdict, case.why, case.note) if case else (row.verdict, row.why, row.note)
        if case is None and row.words is None and _says_nothing(value):
            return  # but an empty reference is a variable that would be missing
        if row.identity and self._run_as_user != "ignore":
            why = "this site refuses pods that choose users or groups (identity.run_as_user: refuse)"
            self._refuse(Unsupported(path, why))
        elif verdict is Verdict.REFUSED:
            self._refuse(Unsupported(path, row.words(value) if row.words and not case else why))
        elif note:
            self.checked.notes.append(f"{path}: {why}")
        if row.kind:
            self._inside(row.kind, value, path)

    def _inside(self, kind: str, value: Any, path: str) -> None:
        if isinstance(value, Mapping):
            self.table(kind, value, path)
            return
        for index, item in enumerate(value):
            where = f"{path}[{index}]"
            if type(item) is dict or isinstance(item, Mapping):
                self.table(kind, item, where)
                if kind == "EnvVar":
                    self._variable(item, where)
                elif kind == "VolumeMount":
                    self._volume_mount(item, where)
            else:
                self._refuse(Invalid(where, "a map is needed"))

    def _variable(self, variable: Mapping[str, Any], path: str) -> None:
        problem = fields_env.variable_problem(variable, path, self._plain)
        if problem is not None:
            self._refuse(problem)

    def _volume(self, volume: Mapping[str, Any], source: str, path: str, row: Row) -> None:
        """A volume counts only where a container mounts it."""
        users = self._mounts.get(str(volume.get("name")), [])
        if users and row.verdict is Verdict.REFUSED:
            names = ", ".join(dict.fromkeys(f'"{container}"' for container in users))
            reason = f'volume "{volume.get("name")}" is not yet carried; mounted by container {names}'
            self._refuse(Unsupported(f"{path}.{source}", reason))
        elif users:
            self._field(row, volume[source], f"{path}.{source}")

    def _volume_mount(self, mount: Mapping[str, Any], path: str) -> None:
        name = str(mount.get("name"))
        volume = self._volumes.get(name)
        if volume is None:
            self._refuse(Invalid(f"{path}.name", f"no volume of this pod is called {name!r}"))
            return
        rows = [key for key in volume if key in TABLES["Volume"] and volume[key] is not None]
        if any(TABLES["Volume"][key].verdict is Verdict.REFUSED for key in rows):
            kinds = ", ".join(key for key in rows if key != "name")
            self._refuse(Unsupported(path, f'volume "{name}" ({kinds}) is not yet carried'))

    def _refuse(self, error: PodError) -> None:
        self.checked.refused.append(error)


def _mounts(spec: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Volume name → the names of the containers that mount it."""
    found: dict[str, list[Any]] = {}
    for group in ("initContainers", "containers"):
        for container in _maps(spec.get(group)):
            for mount in _maps(container.get("volumeMounts")):
                found.setdefault(str(mount.get("name")), []).append(container.get("name"))
    return found


def _maps(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _has_shape(value: Any, shape: str) -> bool:
    if isinstance(value, bool):
        return shape == "bool"
    return isinstance(value, _SHAPES[shape][0])


def _unknown(name: object, rows: Table) -> str:
    key = str(name)
    near = [row for row in rows if row.lower() == key.lower()] or difflib.get_close_matches(key, rows, n=1)
    return f"unknown field; did you mean {near[0]!r}?" if near else "unknown field"


def _says_nothing(value: Any) -> bool:
    """``false``, ``""``, ``[]`` or ``{}``, which Go's encoding leaves out or writes alike; 0 is a number."""
    return value is False or (not isinstance(value, bool | int | float) and not value)
