"""The files of configMap, secret, downwardAPI and projected volumes, from the objects at hand.

The rules are the kubelet's (kubernetes/pkg/volume/{configmap,secret,downwardapi,projected}) and,
for pods that no API server has looked at, its validation's (pkg/apis/core/validation).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurmrest_adapter.domain import resolve_fields
from slurmrest_adapter.domain.errors import Invalid, PodError, Unsupported
from slurmrest_adapter.domain.pod import items, mapping, text
from slurmrest_adapter.domain.resolve_objects import Objects as Index
from slurmrest_adapter.domain.subpath import descending
from slurmrest_adapter.domain.volumes import content

DEFAULT_MODE = 0o644
_NAME_BYTES, _PATH_BYTES = 255, 4096
# Single fields a volume may ask for; labels and annotations come whole or by key.
_FIELDS = frozenset({"metadata.name", "metadata.namespace", "metadata.uid"})
_MAPS = frozenset({"metadata.labels", "metadata.annotations"})
_GO_ESCAPES = {
    7: "\\a",
    8: "\\b",
    12: "\\f",
    10: "\\n",
    13: "\\r",
    9: "\\t",
    11: "\\v",
    34: '\\"',
    92: "\\\\",
}

Files = dict[str, tuple[int, bytes]]


@dataclass(frozen=True, slots=True, repr=False)
class _Entry:
    """One file to be; without data it must have been sent, and `problem` says what if it was not."""

    path: str
    mode: int
    data: bytes | None
    where: str = ""
    problem: PodError | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Maker:
    """Makes the files of one volume.

    Attributes:
        pod: the raw pod.
        index: the ConfigMaps and Secrets at hand.
        sent: files that whoever sent the pod made for this volume, None for none. They stand over
            what is made here, and for what cannot be made here.
        lenient: leave out what is missing, for the volume that the API server adds by itself.
    """

    pod: Mapping[str, Any]
    index: Index
    sent: Mapping[str, bytes] | None = None
    lenient: bool = False

    def files(self, kind: str, source: Mapping[str, Any], where: str) -> Files:
        """The files of a volume: path → (mode, content).

        Args:
            kind: configMap, secret, downwardAPI or projected.
            source: that field of the volume; `where` is its path.

        Raises:
            Invalid: an object or key that is missing and not optional, a path or mode that
                Kubernetes refuses, one path asked for twice.
            Unsupported: a token or a resource that nobody but the sender could know.
        """
        default = mode_of(source.get("defaultMode"), f"{where}.defaultMode", DEFAULT_MODE)
        entries: dict[str, _Entry] = {}
        asked: set[str] = set()
        for one, explicit in self._entries(kind, source, where, default):
            if explicit and kind == "projected" and one.path in asked:
                raise Invalid(one.where, f"the path {one.path!r} is asked for twice in this volume")
            asked.update([one.path] if explicit else [])
            entries[one.path] = one
        for name, data in (self.sent or {}).items():
            path = file_path(name, where)
            mode = entries[path].mode if path in entries else default
            entries[path] = _Entry(path, mode, data)
        for one in entries.values():
            if one.data is None and one.problem is not None and not self.lenient:
                raise one.problem
        found = {path: (one.mode, one.data) for path, one in entries.items() if one.data is not None}
        for path in found:
            parts = path.split("/")
            if any("/".join(parts[:n]) in found for n in range(1, len(parts))):
                raise Invalid(where, f"the path {path!r} lies below a file of the same volume")
        return dict(sorted(found.items()))

    def _entries(
        self, kind: str, source: Mapping[str, Any], where: str, default: int
    ) -> Iterator[tuple[_Entry, bool]]:
        """Each file with whether its path was asked for by name."""
        if kind == "configMap":
            yield from self._keyed("ConfigMap", "name", source, where, default)
        elif kind == "secret":
            # The one place where the name's field is another than in a projection.
            key = "secretName" if "secretName" in source else "name"
            yield from self._keyed("Secret", key, source, where, default)
        elif kind == "downwardAPI":
            yield from self._downward(source, where, default)
        elif kind == "serviceAccountToken":
            path = file_path(source.get("path"), f"{where}.path")
            problem = Unsupported(where, "whoever sends the pod asks for the token, and sent none")
            if self.sent is None and not self.lenient:
                raise problem
            yield _Entry(path, default, None, where, problem), True
        else:
            for index, raw in enumerate(items(source.get("sources"), f"{where}.sources")):
                at = f"{where}.sources[{index}]"
                kinds = [key for key, value in mapping(raw, at).items() if value is not None]
                if len(kinds) != 1:
                    raise Invalid(at, "exactly one source is needed")
                yield from self._entries(
                    kinds[0], mapping(raw[kinds[0]], f"{at}.{kinds[0]}"), f"{at}.{kinds[0]}", default
                )

    def _keyed(
        self, kind: str, name_key: str, source: Mapping[str, Any], where: str, default: int
    ) -> Iterator[tuple[_Entry, bool]]:
        name = text(source.get(name_key), f"{where}.{name_key}")
        optional = source.get("optional") is True
        chosen = items(source.get("items"), f"{where}.items")
        found = self.index.named(kind, name)
        if found is None and not (optional or self.lenient or self.sent is not None):
            raise Invalid(f"{where}.{name_key}", f'there is no {kind} "{name}" with the pod')
        data = {} if found is None else content(found, kind, where)
        if not chosen:
            for key, value in data.items():
                if "/" in key:
                    raise Invalid(where, f'key "{key}" of {kind} "{name}" cannot be a file\'s name')
                yield _Entry(file_path(key, f'{where} (key of {kind} "{name}")'), default, value), False
        for index, raw in enumerate(chosen):
            at = f"{where}.items[{index}]"
            item = mapping(raw, at)
            key = text(item.get("key"), f"{at}.key")
            path = file_path(item.get("path"), f"{at}.path")
            missing = Invalid(f"{at}.key", f'there is no key "{key}" in {kind} "{name}"')
            mode = mode_of(item.get("mode"), f"{at}.mode", default)
            yield _Entry(path, mode, data.get(key), f"{at}.path", None if optional else missing), True

    def _downward(self, source: Mapping[str, Any], where: str, default: int) -> Iterator[tuple[_Entry, bool]]:
        for index, raw in enumerate(items(source.get("items"), f"{where}.items")):
            at = f"{where}.items[{index}]"
            item = mapping(raw, at)
            path = file_path(item.get("path"), f"{at}.path")
            mode = mode_of(item.get("mode"), f"{at}.mode", default)
            kinds = [key for key in ("fieldRef", "resourceFieldRef") if item.get(key) is not None]
            if len(kinds) != 1:
                raise Invalid(at, "exactly one of fieldRef and resourceFieldRef is needed")
            reference, there = mapping(item[kinds[0]], f"{at}.{kinds[0]}"), f"{at}.{kinds[0]}"
            try:
                read = self._field if kinds[0] == "fieldRef" else self._resource
                yield _Entry(path, mode, read(reference, there).encode(), f"{at}.path"), True
            except Unsupported as error:
                yield _Entry(path, mode, None, f"{at}.path", error), True

    def _field(self, reference: Mapping[str, Any], where: str) -> str:
        asked = text(reference.get("fieldPath"), f"{where}.fieldPath")
        if asked in _MAPS:
            metadata = mapping(self.pod.get("metadata"), "metadata")
            return lines(mapping(metadata.get(asked.partition(".")[2]), asked), asked)
        if asked not in _FIELDS and "['" not in asked:
            known = "metadata.name, namespace, uid, labels and annotations"
            raise Invalid(f"{where}.fieldPath", f"{asked!r} cannot be asked for in a volume; known: {known}")
        return resolve_fields.pod_field(self.pod, reference, where, None, (), ())

    def _resource(self, reference: Mapping[str, Any], where: str) -> str:
        text(reference.get("containerName"), f"{where}.containerName")
        return resolve_fields.resource(self.pod, {}, reference, where, {})


def lines(values: Mapping[str, Any], where: str) -> str:
    """A whole map as the kubelet writes it: ``key="value"``, sorted, without a last line end."""
    return "\n".join(f"{key}={quoted(text(values[key], f'{where}[{key}]', True))}" for key in sorted(values))


def quoted(value: str) -> str:
    """A string in double quotes as Go's ``%q`` writes it."""
    return '"' + "".join(map(_escaped, value)) + '"'


def _escaped(letter: str) -> str:
    number = ord(letter)
    if number in _GO_ESCAPES:
        return _GO_ESCAPES[number]
    if letter.isprintable():
        return letter
    if number < 0x20 or number == 0x7F:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def file_path(value: Any, where: str) -> str:
    """A file's path in a volume, made normal.

    Raises:
        Invalid: absolute, with ``..``, or longer than a file system takes.
    """
    path = descending(text(value, where), where)
    if path.startswith("..") or path == ".":
        raise Invalid(where, f"{path!r} cannot be a file's path: it must not begin with '..'")
    if len(path.encode()) > _PATH_BYTES or any(len(p.encode()) > _NAME_BYTES for p in path.split("/")):
        raise Invalid(where, f"is longer than {_NAME_BYTES} bytes in a name or {_PATH_BYTES} in all")
    return path


def mode_of(value: Any, where: str, default: int) -> int:
    """Permission bits; raises Invalid for what is not 0 to 0777 (octal)."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 0o777:
        raise Invalid(where, "must be a number from 0 to 0777 (octal), 511 in decimal")
    return value
