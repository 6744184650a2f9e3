"""The ConfigMaps and Secrets at hand, and what they hold as text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from slurmrest_adapter.domain.env_names import target
from slurmrest_adapter.domain.errors import Invalid, Unsupported
from slurmrest_adapter.domain.pod import mapping, text


class Objects:
    """The objects of the pod's namespace, by name."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        config_maps: Iterable[Mapping[str, Any]],
        secrets: Iterable[Mapping[str, Any]],
    ) -> None:
        namespace = mapping(pod.get("metadata"), "metadata").get("namespace") or "default"
        self._kinds = {
            "ConfigMap": _by_name("ConfigMap", config_maps, namespace),
            "Secret": _by_name("Secret", secrets, namespace),
        }

    def named(self, kind: str, name: str) -> Mapping[str, Any] | None:
        """The object of a kind (``ConfigMap`` or ``Secret``) and a name, None when it is not at hand."""
        return self._kinds[kind].get(name)

    def key_of(self, kind: str, reference: Mapping[str, Any], path: str) -> str | None:
        """One key's value; None when it is optional and not there.

        Raises:
            Invalid: the object or the key is missing.
            Unsupported: the value is no text.
        """
        key = text(reference.get("key"), f"{path}.key")
        found = self._find(kind, reference, path)
        if found is not None:
            value = _decoded(found, key, kind, path)
            if value is not None:
                return value
            if kind == "configMapKeyRef" and key in mapping(found.get("binaryData"), path):
                raise Invalid(path, f"{target(kind, reference)} is binary data, which no variable can take")
        if found is None or _is_optional(reference, path):
            return None
        raise Invalid(path, f"there is no {target(kind, reference)}")

    def all_of(self, kind: str, reference: Mapping[str, Any], path: str) -> dict[str, str]:
        """All keys with their values; empty when the object is optional and not there.

        A ConfigMap's ``binaryData`` makes no variables, as in the kubelet.
        """
        found = self._find(kind, reference, path)
        if found is None:
            return {}
        keys = [*mapping(found.get("data"), path)]
        if kind.startswith("secret"):
            keys += mapping(found.get("stringData"), path)
        values = {str(key): _decoded(found, key, kind, path) for key in keys}
        return {key: value for key, value in values.items() if value is not None}

    def _find(self, kind: str, reference: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
        """The object; None when it is optional and not there."""
        name = text(reference.get("name"), f"{path}.name")
        word = "ConfigMap" if kind.startswith("configMap") else "Secret"
        found = self._kinds[word].get(name)
        if found is None and not _is_optional(reference, path):
            raise Invalid(path, f'there is no {word} "{name}"')
        return found


def _is_optional(reference: Mapping[str, Any], path: str) -> bool:
    optional = reference.get("optional")
    if optional is not None and not isinstance(optional, bool):
        raise Invalid(f"{path}.optional", "true or false is needed")
    return optional is True


def _by_name(
    kind: str, objects: Iterable[Mapping[str, Any]], namespace: object
) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for raw in objects:
        metadata = mapping(raw.get("metadata"), f"{kind}.metadata")
        name = text(metadata.get("name"), f"{kind}.metadata.name")
        if (metadata.get("namespace") or namespace) != namespace:
            continue
        if name in found:
            raise Invalid(f"{kind}.metadata.name", f'"{name}" is given twice')
        found[name] = raw
    return found


def _decoded(found: Mapping[str, Any], key: str, kind: str, path: str) -> str | None:
    """One key's text, None when it is not there.

    ``stringData`` is what the API server would have written over ``data``.
    """
    named = f'key "{key}" of {"ConfigMap" if kind.startswith("configMap") else "Secret"}'
    data = mapping(found.get("data"), path)
    if kind.startswith("configMap"):
        return None if key not in data else _text(data[key], named, path)
    plain = mapping(found.get("stringData"), path)
    if key in plain:
        return _text(plain[key], named, path)
    if key not in data:
        return None
    try:
        return base64.b64decode(_text(data[key], named, path).translate(_LINE_ENDS), validate=True).decode()
    except UnicodeDecodeError as error:
        raise Unsupported(path, f"{named} is no UTF-8 text, which no variable can carry") from error
    except (binascii.Error, ValueError):
        # "from None": the cause would show a part of the secret.
        raise Invalid(path, f"{named} is not base64") from None


# Go's decoder, and so the API server, skips these.
_LINE_ENDS = {ord("\r"): None, ord("\n"): None}


def _text(value: Any, named: str, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Invalid(path, f"{named} is no string (quote it in YAML)")
    return value
