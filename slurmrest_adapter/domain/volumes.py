"""The objects that a pod's volumes may be made of, as they came with the pod.

They come two ways: as documents beside the pod in ``run FILE``, and in interLink's envelope, where
each container brings its own copies and every projected volume is a ConfigMap named after it (file
name → content), because only who sends the pod can ask for a token.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slurmrest_adapter.domain.errors import Invalid
from slurmrest_adapter.domain.pod import items, mapping, optional, text

# The envelope's list for each kind of object.
_LISTS = (("configMaps", "ConfigMap"), ("secrets", "Secret"), ("projectedvolumemaps", "projected volume"))


@dataclass(frozen=True, slots=True, repr=False)
class Objects:
    """What is at hand; secret as a whole, so without a useful repr.

    Attributes:
        config_maps: raw v1 ConfigMaps.
        secrets: raw v1 Secrets.
        projected: ConfigMaps named after the volume whose files they hold.
    """

    config_maps: tuple[Mapping[str, Any], ...] = ()
    secrets: tuple[Mapping[str, Any], ...] = ()
    projected: tuple[Mapping[str, Any], ...] = ()

    def __repr__(self) -> str:
        return "Objects()"

    def files_of(self, volume: str) -> dict[str, bytes] | None:
        """The files that the sender made for a volume, None when it sent none.

        Raises:
            Invalid: something of them is no text, or no base64 where it must be.
        """
        for raw in self.projected:
            where = f'projected volume "{volume}"'
            if mapping(raw.get("metadata"), where).get("name") == volume:
                return content(raw, "ConfigMap", where)
        return None


NONE = Objects()


def of_envelope(containers: Any) -> Objects:
    """The objects in the list ``container`` of interLink's ``RetrievedPodData``.

    Args:
        containers: that list as decoded JSON; ``null`` is empty, as Go writes it. ``emptyDirs`` and
            names of containers say nothing that the pod does not.

    Raises:
        Invalid: a list or an object has the wrong shape; names the field.
    """
    found: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {kind: {} for kind, _ in _LISTS}
    for index, raw in enumerate(items(containers, "container")):
        container = mapping(raw, f"container[{index}]")
        for kind, word in _LISTS:
            for at, one in enumerate(items(container.get(kind), f"container[{index}].{kind}")):
                where = f"container[{index}].{kind}[{at}]"
                metadata = mapping(mapping(one, where).get("metadata"), f"{where}.metadata")
                name = text(metadata.get("name"), f"{where}.metadata.name (of a {word})")
                namespace = optional(metadata.get("namespace"), f"{where}.metadata.namespace")
                # Several containers mount one object: each then brings a copy of it.
                found[kind].setdefault((namespace, name), one)
    return Objects(*(tuple(found[kind].values()) for kind, _ in _LISTS))


def content(found: Mapping[str, Any], kind: str, path: str) -> dict[str, bytes]:
    """What a ConfigMap or Secret holds, key → bytes, in the object's order.

    ``stringData`` is what the API server would have written over ``data``.

    Args:
        found: the raw object.
        kind: ``ConfigMap`` or ``Secret``.
        path: the field that refers to it, for errors.

    Raises:
        Invalid: a value of the wrong kind. The text names the key and shows nothing of the value.
    """
    plain, coded = ("data", "binaryData") if kind == "ConfigMap" else ("stringData", "data")
    held = {
        str(key): _decoded(value, f'key "{key}" of {kind}', path)
        for key, value in mapping(found.get(coded), path).items()
    }
    for key, value in mapping(found.get(plain), path).items():
        if kind == "ConfigMap" and key in held:
            raise Invalid(path, f'key "{key}" of {kind} is both in data and in binaryData')
        held[str(key)] = _encoded(value, f'key "{key}" of {kind}', path)
    return held


def _encoded(value: Any, named: str, path: str) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise Invalid(path, f"{named} is no string (quote it in YAML)")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Invalid(path, f"{named} is no Unicode text (half a surrogate pair)") from None


# Go's decoder, and so the API server, skips these.
_LINE_ENDS = bytes((10, 13))


def _decoded(value: Any, named: str, path: str) -> bytes:
    written = _encoded(value, named, path).translate(None, _LINE_ENDS)
    try:
        return base64.b64decode(written, validate=True)
    except ValueError:
        # "from None": the cause would show a part of the secret.
        raise Invalid(path, f"{named} is not base64") from None
