"""Image references: what a pod writes, and what a runtime on a node can be given.

The grammar is that of the OCI distribution's ``reference`` package, which is also Kubernetes':
``[host[:port]/]path[:tag][@digest]``, where the first part is a host only if it holds a dot or a
colon or is ``localhost``. On top of it stand what Slurm sites use: ``docker://`` and ``oras://``
before the reference, and absolute paths of images on the nodes' file systems.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurmrest_adapter.domain.errors import Invalid, Unsupported

# What Kubernetes takes for names without a host ("busybox" is docker.io/library/busybox).
DEFAULT_REGISTRY = "docker.io"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

_HOST = re.compile(
    r"(?:(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])"
    r"(?:\.(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9]))*|\[[a-fA-F0-9:]+\])(?P<port>:[0-9]+)?"
)
_PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")
_DIGEST_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_MAX_NAME = 255  # of host and path together, by the grammar
_MAX_TEXT = 4096  # no file system takes a longer path


@dataclass(frozen=True, slots=True)
class ImageRef:
    """One image.

    Attributes:
        transport: ``docker`` or ``oras`` (from a registry), or ``path`` (a file or directory).
        registry: ``host`` or ``host:port``; empty for a path.
        repository: the name in the registry; for a path, the absolute path itself.
        tag: as written, None if none was.
        digest: ``algorithm:hex``, None if none was written.
    """

    transport: str
    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    def runtime_ref(self) -> str:
        """What the runtime is given: ``docker://127.0.0.1:5000/lab/busybox:1``, or the path.

        A digest says more than a tag, and Apptainer refuses both together: the tag is left out.
        """
        if self.transport == "path":
            return self.repository
        name = f"{self.transport}://{self.registry}/{self.repository}"
        return f"{name}@{self.digest}" if self.digest else f"{name}:{self.tag or DEFAULT_TAG}"


def parse(text: object, field: str) -> ImageRef:
    """Read an image reference.

    Args:
        text: as the pod writes it.
        field: the field's path, for the error.

    Raises:
        Invalid: the grammar does not allow it.
        Unsupported: a scheme that no runtime here is given (``library://`` …).
    """
    if not isinstance(text, str) or not text:
        raise Invalid(field, "an image is needed, as in registry:5000/name:tag")
    if len(text) > _MAX_TEXT or not text.isprintable() or text != text.strip():
        raise Invalid(field, f"{_shown(text)} holds characters that no image reference has")
    transport, rest = "docker", text
    while match := _SCHEME.match(rest):
        transport, rest = match[1].lower(), rest[match.end() :]
        if transport not in ("docker", "oras"):
            raise Unsupported(
                field, f"images by {transport}:// are not carried; docker://, oras:// or a path"
            )
        if rest.startswith(("docker://", "oras://")) and not rest.startswith(f"{transport}://"):
            raise Invalid(field, f"{_shown(text)} names two different transports")
    if text.startswith("/"):
        return _path(text, field)
    return _reference(transport, rest, text, field)


def default_pull_policy(image: ImageRef) -> str:
    """The pull policy of a container that names none.

    Kubernetes' rule: Always for the tag ``latest``, written or meant, else IfNotPresent. A path
    is never pulled, so it is IfNotPresent.
    """
    if image.transport == "path":
        return "IfNotPresent"
    meant = image.tag or (None if image.digest else DEFAULT_TAG)
    return "Always" if meant == DEFAULT_TAG else "IfNotPresent"


def _path(text: str, field: str) -> ImageRef:
    parts = text.split("/")
    if ".." in parts:
        raise Invalid(field, f"{_shown(text)} climbs with '..'; write the path that is meant")
    clean = "/" + "/".join(part for part in parts if part not in ("", "."))
    if clean == "/":
        raise Invalid(field, "'/' is no image")
    return ImageRef("path", "", clean)


def _reference(transport: str, rest: str, text: str, field: str) -> ImageRef:
    rest, at, digest = rest.partition("@")
    if at and not _is_digest(digest):
        raise Invalid(field, f"{_shown(digest)} is no digest such as sha256:<64 hex digits>")
    first, slash, others = rest.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first or first.lower() != first):
        registry, name = first, others
        if not _HOST.fullmatch(registry):
            raise Invalid(field, f"{_shown(registry)} is no registry host, as in registry:5000")
    elif transport == "oras":
        raise Invalid(field, f"{_shown(text)} needs its registry: oras://host/name:tag")
    else:
        registry, name = DEFAULT_REGISTRY, rest
    name, colon, tag = name.partition(":")
    if colon and not _TAG.fullmatch(tag):
        raise Invalid(field, f"{_shown(tag)} is no tag (letters, digits, '_', '.', '-', at most 128)")
    if not _PATH.fullmatch(name):
        hint = "; names are lower case" if name.lower() != name and _PATH.fullmatch(name.lower()) else ""
        raise Invalid(field, f"{_shown(text)} is no image reference such as registry:5000/name:tag{hint}")
    if registry == "index.docker.io":  # the same registry's older name
        registry = DEFAULT_REGISTRY
    if registry == DEFAULT_REGISTRY and "/" not in name:
        name = f"{DEFAULT_NAMESPACE}/{name}"
    if len(registry) + 1 + len(name) > _MAX_NAME:
        raise Invalid(field, f"the image's name is longer than {_MAX_NAME} characters")
    return ImageRef(transport, registry, name, tag or None, digest or None)


def _is_digest(text: str) -> bool:
    if not _DIGEST.fullmatch(text):
        return False
    algorithm, _, digits = text.partition(":")
    wanted = _DIGEST_DIGITS.get(algorithm)
    return wanted is None or (len(digits) == wanted and digits.lower() == digits)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
