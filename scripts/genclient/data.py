"""The hand-written data files under openapi/: which versions, operations, fields and repairs."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import GenerateError

_OPERATION_KEYS = frozenset({"group", "name", "method", "path", "why"})
FILES = ("versions.toml", "operations.toml", "fields.toml", "repairs.toml")


@dataclass(frozen=True)
class Version:
    """One API version and the releases whose specs it is made from, the oldest first."""

    name: str
    releases: tuple[str, ...]
    why: str

    @property
    def package(self) -> str:
        """The Python package's name: v0.0.42 becomes v0_0_42."""
        return self.name.replace(".", "_")

    def spec_files(self, openapi: Path) -> list[Path]:
        """The emitted specs, in the order of `releases`."""
        return [openapi / release / f"{self.name}.json" for release in self.releases]


@dataclass(frozen=True)
class Operation:
    """One operation in use. `parameters` are the query parameters to keep."""

    group: str
    name: str
    method: str
    path: str
    why: str
    parameters: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """How the repairs call it: group.name."""
        return f"{self.group}.{self.name}"


@dataclass(frozen=True)
class Repair:
    """One repair: `kind` names a function of repairs.py, `args` are its arguments."""

    kind: str
    why: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.kind, *(str(v) for v in self.args.values() if isinstance(v, str))])


@dataclass(frozen=True)
class Data:
    """Everything the data files say. `fields` maps a schema to its dotted fields, or None for all of them."""

    versions: tuple[Version, ...]
    operations: tuple[Operation, ...]
    fields: dict[str, tuple[str, ...] | None]
    repairs: tuple[Repair, ...]


def load(openapi: Path) -> Data:
    """Read the data files.

    Raises GenerateError naming the file and the entry when one is malformed or has no reason.
    """
    tables = {name: _read(openapi / name) for name in FILES}
    return Data(
        versions=tuple(
            Version(name=row["name"], releases=tuple(row["releases"]), why=row["why"])
            for row in _rows(tables, "versions.toml", "version", frozenset({"name", "releases", "why"}))
        ),
        operations=tuple(
            Operation(**{**row, "parameters": tuple(row.get("parameters", ()))})
            for row in _rows(
                tables, "operations.toml", "operation", _OPERATION_KEYS, frozenset({"parameters"})
            )
        ),
        fields=_fields(tables["fields.toml"]),
        repairs=tuple(
            Repair(row["kind"], row["why"], {k: v for k, v in row.items() if k not in ("kind", "why")})
            for row in _rows(tables, "repairs.toml", "repair", frozenset({"kind", "why"}), None)
        ),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GenerateError(f"{path.name}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise GenerateError(f"{path.name}: {error}") from error


def _rows(
    tables: dict[str, dict[str, Any]],
    file: str,
    key: str,
    required: frozenset[str],
    optional: frozenset[str] | None = frozenset(),
) -> list[dict[str, Any]]:
    """The rows of one file, each checked for its keys. optional=None allows any further key."""
    rows: list[dict[str, Any]] = tables[file].get(key, [])
    if not rows:
        raise GenerateError(f"{file}: no [[{key}]] in it")
    for number, row in enumerate(rows, 1):
        label = f"{file}: {key} {number} ({row.get('name') or row.get('kind') or '?'})"
        if missing := required - row.keys():
            raise GenerateError(f"{label}: {', '.join(sorted(missing))} missing")
        if optional is not None and (unknown := row.keys() - required - optional):
            raise GenerateError(f"{label}: unknown key {', '.join(sorted(unknown))}")
        if not str(row["why"]).strip():
            raise GenerateError(f"{label}: why is empty")
    return rows


def _fields(table: dict[str, Any]) -> dict[str, tuple[str, ...] | None]:
    result: dict[str, tuple[str, ...] | None] = {}
    for schema, row in table.items():
        if not isinstance(row, dict) or row.keys() != {"fields", "why"} or not str(row["why"]).strip():
            raise GenerateError(f"fields.toml: [{schema}] needs exactly fields and why")
        names = row["fields"]
        if names != "all" and (not isinstance(names, list) or len(set(names)) != len(names)):
            raise GenerateError(f'fields.toml: [{schema}] fields must be "all" or a list without repetitions')
        result[schema] = None if names == "all" else tuple(names)
    return result
