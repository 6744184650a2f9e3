"""A read-only view of a v1.Pod that stays the raw dictionary it came as.

The API server may send fields this project has never heard of, so nothing is parsed into models;
the view checks what it hands out and names the field when a value has the wrong shape. ``null``
counts as absent everywhere: Go writes it for empty lists and maps.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurmrest_adapter.domain.errors import Invalid

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST_LABEL = 63
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_SERVICE_ACCOUNT = ("serviceAccountName", "serviceAccount")  # the second is its old name
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, repr=False)
class ContainerView:
    """One container and where it stands in the pod."""

    raw: Mapping[str, Any]
    path: str
    init: bool

    @property
    def name(self) -> str:
        """The container's name; a DNS label, as Kubernetes demands."""
        name = self.raw.get("name")
        if type(name) is str and is_label(name):
            return name
        name = text(name, f"{self.path}.name")
        if not is_label(name):
            raise Invalid(f"{self.path}.name", f"{name!r} is no DNS label (a-z, 0-9 and '-')")
        return name

    @property
    def image(self) -> str:
        """The image as written."""
        return text(self.raw.get("image"), f"{self.path}.image")

    @property
    def sidecar(self) -> bool:
        """Is it an init container that runs on beside the app containers (KEP-753)?"""
        return self.init and self.raw.get("restartPolicy") == "Always"

    def words(self, key: str) -> tuple[str, ...] | None:
        """``command`` or ``args``; None when absent or empty, which Kubernetes treats alike."""
        path = f"{self.path}.{key}"
        given = items(self.raw.get(key), path)
        return tuple([text(word, f"{path}[{index}]", True) for index, word in enumerate(given)]) or None

    @property
    def env(self) -> tuple[tuple[str, str], ...]:
        """Plain variables in order; a reference must have been resolved before."""
        pairs = []
        path = f"{self.path}.env"
        for index, entry in enumerate(items(self.raw.get("env"), path)):
            where = f"{path}[{index}]"
            entry = mapping(entry, where)
            name = text(entry.get("name"), f"{where}.name")
            pairs.append((name, optional(entry.get("value"), f"{where}.value")))
        return tuple(pairs)

    def resources(self, kind: str) -> Mapping[str, Any]:
        """``limits`` or ``requests``."""
        given = self.raw.get("resources")
        if given is None:
            return {}
        if type(given) is dict and type(found := given.get(kind)) is dict:
            return found
        where = f"{self.path}.resources"
        return mapping(mapping(self.raw.get("resources"), where).get(kind), f"{where}.{kind}")


@dataclass(frozen=True, slots=True, repr=False)
class PodView:
    """A pod; build it with `view`, which checks the envelope."""

    raw: Mapping[str, Any]

    @property
    def metadata(self) -> Mapping[str, Any]:
        return mapping(self.raw.get("metadata"), "metadata")

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping(self.raw.get("spec"), "spec")

    @property
    def name(self) -> str:
        return text(self.metadata.get("name"), "metadata.name")

    @property
    def namespace(self) -> str:
        return optional(self.metadata.get("namespace"), "metadata.namespace") or "default"

    @property
    def uid(self) -> str:
        return text(self.metadata.get("uid"), "metadata.uid")

    @property
    def service_account(self) -> str:
        names = [optional(self.spec.get(key), f"spec.{key}") for key in _SERVICE_ACCOUNT]
        return next(filter(None, names), "default")

    @property
    def labels(self) -> Mapping[str, Any]:
        return mapping(self.metadata.get("labels"), "metadata.labels")

    @property
    def annotations(self) -> Mapping[str, Any]:
        return mapping(self.metadata.get("annotations"), "metadata.annotations")

    @property
    def restart_policy(self) -> str:
        return optional(self.spec.get("restartPolicy"), "spec.restartPolicy") or "Always"

    @property
    def grace_seconds(self) -> int:
        """terminationGracePeriodSeconds; Kubernetes' default is 30."""
        value = self.spec.get("terminationGracePeriodSeconds")
        return 30 if value is None else seconds(value, "spec.terminationGracePeriodSeconds", 0)

    @property
    def deadline_seconds(self) -> int | None:
        """activeDeadlineSeconds, at least 1, or None."""
        value = self.spec.get("activeDeadlineSeconds")
        return None if value is None else seconds(value, "spec.activeDeadlineSeconds", 1)

    def containers(self) -> Iterator[ContainerView]:
        """Init containers first, then the app containers, each group in the spec's order."""
        for key, init in (("initContainers", True), ("containers", False)):
            for index, raw in enumerate(items(self.spec.get(key), f"spec.{key}")):
                where = f"spec.{key}[{index}]"
                yield ContainerView(mapping(raw, where), where, init)


def view(raw: Any) -> PodView:
    """Check a pod's envelope and names.

    Raises:
        Invalid: not a v1 Pod, no name, no container, a name that Kubernetes would refuse, twice
            the same container name.
    """
    if not isinstance(raw, Mapping):
        raise Invalid("kind", "this is no Kubernetes object (a map with apiVersion, kind, metadata, spec)")
    if raw.get("kind") not in ("Pod", None) or raw.get("apiVersion") not in ("v1", None):
        raise Invalid("kind", f"a v1 Pod is needed, this is {raw.get('apiVersion')} {raw.get('kind')}")
    if raw.get("kind") is None and not raw.get("spec"):
        raise Invalid("kind", "a v1 Pod is needed, this has neither kind nor spec")
    pod = PodView(raw)
    if not _SUBDOMAIN.fullmatch(pod.name):
        raise Invalid("metadata.name", f"{pod.name!r} is no DNS name (a-z, 0-9, '-' and '.')")
    if not is_label(pod.namespace):
        raise Invalid("metadata.namespace", f"{pod.namespace!r} is no DNS label (a-z, 0-9 and '-')")
    if not _UID.fullmatch(pod.uid):
        raise Invalid("metadata.uid", f"{pod.uid!r} cannot be a UID")
    seen: set[str] = set()
    apps = 0
    for container in pod.containers():
        apps += not container.init
        if container.name in seen:
            raise Invalid(f"{container.path}.name", f"{container.name!r} is used twice")
        seen.add(container.name)
    if not apps:
        raise Invalid("spec.containers", "at least one container is needed")
    return pod


def is_label(name: str) -> bool:
    """Is this a DNS label, as Kubernetes wants names of containers, namespaces and hosts?"""
    return len(name) <= _LONGEST_LABEL and _fits_label(name)


@functools.lru_cache(maxsize=1024)  # each container's name is asked for again and again
def _fits_label(name: str) -> bool:
    return _LABEL.fullmatch(name) is not None


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """A map, empty when absent or null; anything else is Invalid."""
    if value is None:
        return {}
    if type(value) is not dict and not isinstance(value, Mapping):
        raise Invalid(where, f"a map is needed, this is {kind_of(value)}")
    return value


def items(value: Any, where: str) -> list[Any]:
    """A list, empty when absent or null; anything else is Invalid."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Invalid(where, f"a list is needed, this is {kind_of(value)}")
    return value


def text(value: Any, where: str, empty: bool = False) -> str:
    """A string without NUL; absent is Invalid, as is an empty one unless `empty` allows it."""
    if type(value) is str and value and value.isascii() and "\0" not in value:
        return value  # nearly all of them
    if value is None or (value == "" and not empty):
        raise Invalid(where, "is required")
    if not isinstance(value, str):
        raise Invalid(where, f"a string is needed, this is {kind_of(value)} (quote it in YAML)")
    if "\0" in value:
        raise Invalid(where, "holds a NUL character, which no process can be given")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(where, "is no Unicode text (half a surrogate pair)") from None
    return value


def optional(value: Any, where: str) -> str:
    """Like `text`, and "" when absent; any other kind is Invalid, never taken for absent."""
    return "" if value is None else text(value, where, True)


def seconds(value: Any, where: str, least: int) -> int:
    """A whole number of seconds, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        raise Invalid(where, f"a whole number of seconds, {least} or more, is needed")
    return value


def kind_of(value: Any) -> str:
    """A value's kind in YAML's words."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return next((word for kind, word in names.items() if isinstance(value, kind)), "a map")
