"""Reading an OpenAPI document: types, references, reachability, and the union of two releases' specs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import GenerateError

Json = dict[str, Any]
PREFIX = "#/components/schemas/"

# Prose may differ between releases; the newest release's words are kept.
_PROSE = frozenset({"description", "summary", "deprecated"})


def read(path: Path) -> Json:
    """One spec file. Raises GenerateError when it is absent or not an OpenAPI document."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GenerateError(f"spec {path.parent.name}/{path.name}: {error}") from error
    if not isinstance(document, dict) or "paths" not in document:
        raise GenerateError(f"spec {path.parent.name}/{path.name}: no paths in it")
    return document


def schemas(spec: Json) -> dict[str, Json]:
    """The named schemas, the live dictionary."""
    found: dict[str, Json] = spec["components"]["schemas"]
    return found


def operations(spec: Json) -> Iterator[Json]:
    """Every operation of every path."""
    for methods in spec["paths"].values():
        yield from methods.values()


def ref_name(node: object) -> str | None:
    """The schema a `$ref` node points at, or None."""
    if isinstance(node, dict) and isinstance(ref := node.get("$ref"), str) and ref.startswith(PREFIX):
        return ref.removeprefix(PREFIX)
    return None


def walk(node: object) -> Iterator[Json]:
    """Every dictionary inside `node`, itself first."""
    if isinstance(node, dict):
        yield node
        for value in list(node.values()):
            yield from walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from walk(value)


def object_schemas(spec: Json) -> Iterator[tuple[str, Json]]:
    """Named schemas that are objects with declared properties."""
    for name, schema in list(schemas(spec).items()):
        if isinstance(schema.get("properties"), dict):
            yield name, schema


def drop_unreachable(spec: Json) -> None:
    """Remove schemas that no operation reaches; raise GenerateError for a reference to nowhere."""
    known = schemas(spec)
    reached: set[str] = set()
    todo: list[object] = [spec["paths"]]
    while todo:
        for node in walk(todo.pop()):
            name = ref_name(node)
            if name is None or name in reached:
                continue
            if name not in known:
                raise GenerateError(f"schema {name} is referred to but not defined")
            reached.add(name)
            todo.append(known[name])
    for name in known.keys() - reached:
        del known[name]


def union(older: Any, newer: Any, where: str = "spec") -> Any:
    """The union of the same API version's specs from two releases.

    Objects are joined key by key, lists (enum words, parameters) keep the older order and gain what is new.
    Words meant for people come from the newer; of two widths of an integer the wider is taken. Anything else
    that differs, a type for instance, raises GenerateError naming the place: that needs a decision, no guess.
    """
    if isinstance(older, dict) and isinstance(newer, dict):
        joined = dict(older)
        for key, value in newer.items():
            if key not in older or (key in _PROSE and not isinstance(value, dict)):
                joined[key] = value
            else:
                joined[key] = union(older[key], value, f"{where}.{key}")
        return joined
    if isinstance(older, list) and isinstance(newer, list):
        return _union_list(older, newer, where)
    if older == newer or where == "spec.info.version":
        return newer
    if where.endswith(".format") and {older, newer} == {"int32", "int64"}:
        return "int64"
    raise GenerateError(f"{where}: the releases differ ({older!r} and {newer!r})")


def _union_list(older: list[Any], newer: list[Any], where: str) -> list[Any]:
    """Parameters are matched by place and name, everything else by being equal."""
    joined = list(older)
    for item in newer:
        if item in joined:
            continue
        key = _parameter_key(item)
        same = (
            None
            if key is None
            else next((i for i, old in enumerate(joined) if _parameter_key(old) == key), None)
        )
        if same is None:
            joined.append(item)
        else:
            joined[same] = union(joined[same], item, f"{where}.{item['name']}")
    return joined


def _parameter_key(item: object) -> tuple[str, str] | None:
    if isinstance(item, dict) and "in" in item and "name" in item:
        return str(item["in"]), str(item["name"])
    return None
