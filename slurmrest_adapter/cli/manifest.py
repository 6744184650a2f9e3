"""Reading ``run FILE``: one pod, and any ConfigMaps and Secrets it names, as YAML or JSON documents."""

from __future__ import annotations

import copy
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from slurmrest_adapter.domain.errors import AdapterError, Invalid
from slurmrest_adapter.domain.pod import items, kind_of
from slurmrest_adapter.domain.resolve import resolve

KINDS = ("Pod", "ConfigMap", "Secret")


class BadManifest(AdapterError):
    """The file cannot be read as Kubernetes documents."""


@dataclass(frozen=True, slots=True, repr=False)
class Manifest:
    """What a file holds; pod text and secrets, so without a useful repr."""

    pod: Mapping[str, Any]
    config_maps: tuple[Mapping[str, Any], ...]
    secrets: tuple[Mapping[str, Any], ...]


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a key given twice is a mistake, not a choice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            if isinstance(key, str | int):
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


# Kubernetes has no dates: an unquoted 2026-01-02 is a string there.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path: str) -> Manifest:
    """Read a file, ``-`` for standard input.

    Raises:
        BadManifest: unreadable, malformed YAML (with its line), or no document.
        Invalid: not exactly one pod, or a document of another kind.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadManifest(f"{path}: cannot be read: {error}") from error
    try:
        documents = [d for d in yaml.load_all(text, Loader=_Loader) if d is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a number without end
        raise BadManifest(f"{path}: {_where(error)}") from error
    if not documents:
        raise BadManifest(f"{path}: holds no document")
    return _sort(documents)


def pod_of(manifest: Manifest) -> dict[str, Any]:
    """The pod ready to be submitted: with a UID and a namespace, every reference resolved.

    Raises:
        Invalid, Unsupported: a reference that the file cannot answer, by field.
    """
    pod = copy.deepcopy(dict(manifest.pod))
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict):
        raise Invalid(
            "metadata", f"a map is needed, this is {kind_of(metadata)}" if metadata else "is required"
        )
    metadata["uid"] = metadata.get("uid") or str(uuid.uuid4())
    metadata["namespace"] = metadata.get("namespace") or "default"
    return resolve(pod, manifest.config_maps, manifest.secrets)


def _sort(documents: list[Any]) -> Manifest:
    by_kind: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in KINDS}
    for number, document in enumerate(_flat(documents), 1):
        if not isinstance(document, dict):
            raise Invalid("kind", f"document {number} is {kind_of(document)}, no Kubernetes object")
        kind = document.get("kind")
        if document.get("apiVersion") != "v1" or kind not in KINDS:
            raise Invalid(
                "kind",
                f"document {number} is {document.get('apiVersion')} {kind}; "
                f"a file takes one v1 Pod and any v1 ConfigMaps and Secrets",
            )
        by_kind[kind].append(document)
    if len(by_kind["Pod"]) != 1:
        raise Invalid("kind", f"a file takes exactly one Pod, this has {len(by_kind['Pod'])}")
    return Manifest(by_kind["Pod"][0], tuple(by_kind["ConfigMap"]), tuple(by_kind["Secret"]))


def _flat(documents: list[Any]) -> list[Any]:
    """Documents with every v1 List taken apart, as ``kubectl get -o yaml`` writes them."""
    flat: list[Any] = []
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "List":
            flat.extend(items(document.get("items"), "items"))
        else:
            flat.append(document)
    return flat


def _where(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        what = " ".join(str(part) for part in (error.context, error.problem) if part)
        return f"malformed YAML at line {mark.line + 1}, column {mark.column + 1}: {what}"
    return f"malformed YAML: {' '.join(str(error).split())}"
