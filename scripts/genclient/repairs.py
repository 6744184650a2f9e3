"""The repairs of a spec. Each public entry of REPAIRS is a `kind` of openapi/repairs.toml.

A repair changes the document in place and answers whether it found its target, so that an entry which no
version needs is noticed. Reasons are in the data file.
"""

import copy
import json
import re
from collections.abc import Callable
from typing import Any

from .errors import GenerateError
from .spec import PREFIX, Json, drop_unreachable, object_schemas, operations, ref_name, schemas, walk

_VERSION_PREFIX = re.compile(r"^v\d+\.\d+\.\d+_")
_BOOLEANS = {0: False, 1: True}


def _rename(spec: Json, names: dict[str, str]) -> None:
    """Rename schemas and every reference to them. Two old names may become one new one."""
    known = schemas(spec)
    spec["components"]["schemas"] = {names.get(name, name): schema for name, schema in known.items()}
    for node in walk(spec):
        name = ref_name(node)
        if name in names:
            node["$ref"] = PREFIX + names[name]


def _find(spec: Json, operation: str) -> Json | None:
    group, _, name = operation.partition(".")
    for node in operations(spec):
        if node["operationId"] == name and node["tags"] == [group]:
            return node
    return None


def strip_version_prefix(spec: Json) -> bool:
    """v0.0.42_job_info -> job_info."""
    _rename(spec, {name: _VERSION_PREFIX.sub("", name) for name in schemas(spec)})
    return True


def merge_schemas(spec: Json, *, into: str, **args: Any) -> bool:
    """One schema in place of several with the same fields. Raises GenerateError if they are not the same."""
    known = schemas(spec)
    names = [name for name in args["from"] if name in known]
    shapes = {json.dumps(sorted(known[name]["properties"])) for name in names}
    if len(shapes) > 1:
        raise GenerateError(f"merge_schemas {into}: {', '.join(names)} do not have the same fields")
    # int64 holds them all; the format changes nothing in Python, but the text should not say int32
    for name in names:
        for node in known[name]["properties"].values():
            if node.get("type") == "integer":
                node["format"] = "int64"
    _rename(spec, dict.fromkeys(names, into))
    return bool(names)


def rename_schema(spec: Json, *, schema: str, to: str) -> bool:
    """Another name for one schema. Raises GenerateError when that name is taken."""
    if to in schemas(spec):
        raise GenerateError(f"rename_schema {schema}: {to} exists already")
    found = schema in schemas(spec)
    _rename(spec, {schema: to})
    return found


def add_schema(spec: Json, *, schema: str, definition: Json) -> bool:
    """A schema the spec lacks. A spec that has it keeps its own."""
    if schema in schemas(spec):
        return False
    schemas(spec)[schema] = copy.deepcopy(definition)
    return True


def response_schema(spec: Json, *, operation: str, schema: str) -> bool:
    """The answers of one operation are another schema than the spec says."""
    node = _find(spec, operation)
    if node is None:
        return False
    for response in node["responses"].values():
        response["content"] = {"application/json": {"schema": {"$ref": PREFIX + schema}}}
    return True


def list_parameters(spec: Json, *, operation: str, parameters: list[str]) -> bool:
    """Query parameters that take several values by being repeated."""
    node = _find(spec, operation)
    found = [p for p in (node or {}).get("parameters", []) if p["name"] in parameters]
    for parameter in found:
        parameter["schema"] = {"type": "array", "items": {"type": "string"}}
        parameter["schema"]["description"] = "repeated for several values"
        parameter["explode"] = True
    return bool(found)


def set_field(spec: Json, *, schema: str, field: str, definition: Json) -> bool:
    """The definition of one field, in place of the spec's or added to it."""
    node = schemas(spec).get(schema)
    if node is None:
        return False
    old = node["properties"].get(field, {})
    prose = {k: old[k] for k in ("description",) if k in old}
    node["properties"][field] = {**prose, **definition}
    return True


def fix_boolean_defaults(spec: Json) -> bool:
    """default: 0 of a boolean becomes default: false."""
    for node in walk(spec):
        if node.get("type") == "boolean" and type(node.get("default")) is int:
            node["default"] = _BOOLEANS.get(node["default"], True)
    return True


def open_enums(spec: Json) -> bool:
    """Enums become plain strings."""
    for node in walk(spec):
        if isinstance(node.get("enum"), list):
            del node["enum"]
            node.setdefault("type", "string")
    return True


def drop_required(spec: Json) -> bool:
    """No field of a schema is required. Path parameters stay required: theirs is a boolean."""
    for node in walk(spec["components"]["schemas"]):
        if isinstance(node.get("required"), list):
            del node["required"]
    return True


def inline_lists(spec: Json) -> bool:
    """Write schemas that are not objects in place of the references to them."""
    known = schemas(spec)
    flat = {name: schema for name, schema in known.items() if schema.get("type") not in ("object", None)}
    for _ in range(5):  # a list of lists needs a second round; deeper nesting than this is a loop
        again = False
        for node in walk(spec):
            name = ref_name(node)
            if name in flat:
                description = node.get("description")
                node.clear()
                node.update(copy.deepcopy(flat[name]))
                if description:
                    node["description"] = description
                again = True
        if not again:
            drop_unreachable(spec)
            return True
    raise GenerateError("inline_lists: a schema that is no object contains itself")


def name_objects(spec: Json) -> bool:
    """Give each inline object a schema of its own, called parent_field."""
    todo = [name for name, _ in object_schemas(spec)]
    while todo:
        parent = todo.pop(0)
        for field, node in schemas(spec)[parent]["properties"].items():
            target = node.get("items", {}) if node.get("type") == "array" else node
            if not isinstance(target.get("properties"), dict):
                continue
            name = re.sub(r"\W", "_", f"{parent}_{field}")
            if name in schemas(spec):
                raise GenerateError(f"name_objects: {name} exists already")
            schemas(spec)[name] = dict(target)
            target.clear()
            target["$ref"] = PREFIX + name
            todo.append(name)
    return True


def nullable(spec: Json) -> bool:
    """Every list, object and reference in an object may be null."""
    for _, schema in object_schemas(spec):
        for field, node in schema["properties"].items():
            if ref_name(node):
                schema["properties"][field] = {"allOf": [{"$ref": node["$ref"]}], "nullable": True}
                if "description" in node:
                    schema["properties"][field]["description"] = node["description"]
            elif node.get("type") in ("array", "object"):
                node["nullable"] = True
    return True


def one_response(spec: Json) -> bool:
    """Keep the default answer alone. Raises GenerateError when another answer has another schema."""
    for node in operations(spec):
        found = {json.dumps(r["content"], sort_keys=True) for r in node["responses"].values()}
        if len(found) != 1:
            raise GenerateError(f"one_response: {node['operationId']} has answers of different schemas")
        node["responses"] = {"default": next(iter(node["responses"].values()))}
    return True


REPAIRS: dict[str, Callable[..., bool]] = {
    function.__name__: function
    for function in (
        strip_version_prefix,
        merge_schemas,
        rename_schema,
        add_schema,
        response_schema,
        list_parameters,
        set_field,
        fix_boolean_defaults,
        open_enums,
        drop_required,
        inline_lists,
        name_objects,
        nullable,
        one_response,
    )
}
