"""Keep the operations in use and the fields in use."""

from typing import Any

from .data import Data, Operation
from .errors import GenerateError
from .spec import Json, drop_unreachable, object_schemas, schemas


class Seen:
    """What at least one version's spec had of the data files' entries, so that misspelt ones are found."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.missing: dict[str, list[str]] = {}

    def note(self, entry: str, version: str, present: bool) -> None:
        """Remember whether this version's spec has the entry."""
        if present:
            self.found.add(entry)
        else:
            self.missing.setdefault(version, []).append(entry)

    def check(self) -> None:
        """Raise GenerateError for entries that no version has."""
        nowhere = sorted({e for entries in self.missing.values() for e in entries} - self.found)
        if nowhere:
            raise GenerateError("in the data files, but in no spec: " + "; ".join(nowhere))


def prune_operations(spec: Json, data: Data, version: str, seen: Seen) -> None:
    """Keep only the operations in use, named as the data says, with the parameters in use."""
    paths: dict[str, Json] = {}
    for operation in data.operations:
        path = operation.path.replace("{version}", version)
        node = spec["paths"].get(path, {}).get(operation.method)
        seen.note(f"operation {operation.key}", version, node is not None)
        if node is not None:
            paths.setdefault(path, {})[operation.method] = _operation(node, operation, version, seen)
    spec["paths"] = paths
    drop_unreachable(spec)


def _operation(node: Json, operation: Operation, version: str, seen: Seen) -> Json:
    kept: list[Json] = []
    have = {p["name"] for p in node.get("parameters", []) if p["in"] == "query"}
    for name in operation.parameters:
        seen.note(f"parameter {operation.key} {name}", version, name in have)
    for parameter in node.get("parameters", []):
        if parameter["in"] == "path" or parameter["name"] in operation.parameters:
            # the generator reads the description of the schema, not of the parameter
            words = {k: v for k, v in parameter.items() if k == "description"}
            kept.append({**parameter, "schema": {**parameter["schema"], **words}})
    return {**node, "operationId": operation.name, "tags": [operation.group], "parameters": kept}


def project_fields(spec: Json, data: Data, version: str, seen: Seen) -> None:
    """Keep only the fields in use; what an answer has beside them becomes additional_properties.

    Raises GenerateError for a schema that is reached but not listed in fields.toml.
    """
    for schema, fields in data.fields.items():
        node = schemas(spec).get(schema)
        seen.note(f"schema {schema}", version, node is not None)
        if node is None or fields is None:
            continue
        properties: Json = {}
        for dotted in fields:
            present = _copy_field(node["properties"], properties, dotted.split("."))
            seen.note(f"field {schema}.{dotted}", version, present)
        node["properties"] = properties
    drop_unreachable(spec)
    unlisted = sorted(name for name, _ in object_schemas(spec) if name not in data.fields)
    if unlisted:
        raise GenerateError(f"fields.toml does not list these schemas of {version}: {', '.join(unlisted)}")


def _copy_field(source: Json, target: Json, parts: list[str]) -> bool:
    """Copy one dotted field with the inline objects on its way. False when the source has no such field."""
    name, rest = parts[0], parts[1:]
    node: Any = source.get(name)
    if node is None:
        return False
    if not rest:
        target[name] = node
        return True
    inner = node.get("properties")
    if inner is None:
        return False
    kept = target.setdefault(name, {**node, "properties": {}})
    return _copy_field(inner, kept["properties"], rest)
