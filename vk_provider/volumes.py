"""File volumes → interLink's `RetrievedPodData`: what the containers mount, as objects.

ConfigMaps and Secrets travel whole; the sidecar applies `items` and modes from the pod's spec.
Projected and downward volumes, which only the cluster can make, travel as a ConfigMap named after
the volume: file name → content.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slurmrest_adapter.domain import resolve_fields
from slurmrest_adapter.domain.errors import Unsupported
from slurmrest_adapter.domain.resolve import Facts
from vk_provider.cache import Pod
from vk_provider.goquote import quoted
from vk_provider.references import Objects, mount_failed

Token = Callable[[str, int], str]  # (audience, seconds) → a service account token
DEFAULT_TOKEN_S = 3600


def containers_data(pod: Pod, objects: Objects, facts: Facts, token: Token) -> list[dict[str, Any]]:
    """The list ``container`` of `RetrievedPodData`, init containers first.

    Args:
        pod: the raw pod.
        objects: what `references.fetch` brought.
        facts: what is known of the node, for downward API files.
        token: asks for a service account token.

    Raises:
        NotYet: a key that is not optional is missing.
        Unsupported, Invalid: a projection that cannot be made.
    """
    spec = pod.get("spec") or {}
    made = {
        volume["name"]: _Volume(pod, volume, objects, facts, token) for volume in spec.get("volumes") or ()
    }
    data = []
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        entry: dict[str, Any] = {
            "name": container.get("name"),
            "configMaps": [],
            "projectedvolumemaps": [],
            "secrets": [],
            "emptyDirs": [],
        }
        mounted = dict.fromkeys(mount.get("name") for mount in container.get("volumeMounts") or ())
        for name in mounted:
            if name in made:
                key, thing = made[name].entry()
                if key and thing is not None:
                    entry[key].append(thing)
        data.append(entry)
    return data


class _Volume:
    """One volume, made when a container first mounts it."""

    def __init__(
        self, pod: Pod, raw: Mapping[str, Any], objects: Objects, facts: Facts, token: Token
    ) -> None:
        self._pod, self._raw, self._objects, self._facts, self._token = pod, raw, objects, facts, token
        self._name = str(raw.get("name"))
        self._projected: dict[str, Any] | None = None

    def entry(self) -> tuple[str, Any]:
        """The list it belongs into, and what to put there."""
        raw = self._raw
        if raw.get("configMap"):
            return "configMaps", self._whole("ConfigMap", raw["configMap"].get("name"), raw["configMap"])
        if raw.get("secret"):
            return "secrets", self._whole("Secret", raw["secret"].get("secretName"), raw["secret"])
        if raw.get("emptyDir") is not None:
            return "emptyDirs", self._name
        if raw.get("projected") is None and raw.get("downwardAPI") is None:
            return "", None  # the sidecar carries it by the pod's spec, or refuses it by name
        if self._projected is None:
            self._projected = self._project()
        return "projectedvolumemaps", self._projected

    def _whole(self, kind: str, name: str, source: Mapping[str, Any]) -> Any:
        found = self._objects.get(kind, name)
        if found is None:
            return None
        self._check_items(kind, found, source)
        return clean(kind, found)

    def _check_items(self, kind: str, found: Mapping[str, Any], source: Mapping[str, Any]) -> None:
        for item in source.get("items") or ():
            if item.get("key") not in _keys(found) and not source.get("optional"):
                word = "config" if kind == "ConfigMap" else "secret"
                raise mount_failed(self._name, f"references non-existent {word} key: {item.get('key')}")

    def _project(self) -> dict[str, Any]:
        data: dict[str, str] = {}
        binary: dict[str, str] = {}
        field = f"spec.volumes[{self._name}]"
        sources = (self._raw.get("projected") or {}).get("sources")
        for source in [{"downwardAPI": self._raw["downwardAPI"]}] if sources is None else sources:
            for path, content in self._files(source, field):
                try:
                    data[path] = content.decode()
                    binary.pop(path, None)
                except UnicodeDecodeError:
                    binary[path] = base64.b64encode(content).decode()
                    data.pop(path, None)
        namespace = (self._pod.get("metadata") or {}).get("namespace")
        made: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": namespace},
            "data": data,
        }
        return {**made, "binaryData": binary} if binary else made

    def _files(self, source: Mapping[str, Any], field: str) -> Iterator[tuple[str, bytes]]:
        kinds = [key for key, value in source.items() if value is not None]
        for kind in kinds:
            given = source[kind]
            match kind:
                case "serviceAccountToken":
                    seconds = given.get("expirationSeconds") or DEFAULT_TOKEN_S
                    yield given["path"], self._token(given.get("audience") or "", int(seconds)).encode()
                case "configMap" | "secret":
                    yield from self._keys_of("ConfigMap" if kind == "configMap" else "Secret", given)
                case "downwardAPI":
                    for index, item in enumerate(given.get("items") or ()):
                        yield (
                            item["path"],
                            self._downward(item, f"{field}.downwardAPI.items[{index}]").encode(),
                        )
                case _:
                    raise Unsupported(f"{field}.projected.{kind}", "this source cannot be made here")

    def _keys_of(self, kind: str, source: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
        found = self._objects.get(kind, source.get("name") or "")
        if found is None:
            return
        self._check_items(kind, found, source)
        values = _contents(kind, found, self._name)
        items = source.get("items")
        for item in items if items else [{"key": key, "path": key} for key in sorted(values)]:
            if item["key"] in values:
                yield item["path"], values[item["key"]]

    def _downward(self, item: Mapping[str, Any], field: str) -> str:
        if item.get("resourceFieldRef"):
            return resolve_fields.resource(
                self._pod, {}, item["resourceFieldRef"], f"{field}.resourceFieldRef", self._facts.allocatable
            )
        reference = item.get("fieldRef") or {}
        if reference.get("fieldPath") in ("metadata.labels", "metadata.annotations"):
            kept = (self._pod.get("metadata") or {}).get(reference["fieldPath"].split(".")[1]) or {}
            return "\n".join(f"{key}={quoted(kept[key])}" for key in sorted(kept))
        return resolve_fields.pod_field(
            self._pod,
            reference,
            f"{field}.fieldRef",
            self._facts.node_name,
            self._facts.host_ips,
            self._facts.pod_ips,
        )


def clean(kind: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The object as it travels: its kind said, without the API server's own bookkeeping."""
    metadata = {key: value for key, value in (found.get("metadata") or {}).items() if key != "managedFields"}
    return {**found, "apiVersion": "v1", "kind": kind, "metadata": metadata}


def _keys(found: Mapping[str, Any]) -> set[str]:
    return {*(found.get("data") or {}), *(found.get("binaryData") or {})}


def _contents(kind: str, found: Mapping[str, Any], volume: str) -> dict[str, bytes]:
    plain, binary = found.get("data") or {}, found.get("binaryData") or {}
    if kind == "Secret":
        plain, binary = {}, plain
    try:
        decoded = {key: base64.b64decode(value or "", validate=True) for key, value in binary.items()}
    except (binascii.Error, ValueError):
        raise mount_failed(volume, f"{kind.lower()} data is no base64") from None  # the cause shows it
    return {**{key: str(value or "").encode() for key, value in plain.items()}, **decoded}
