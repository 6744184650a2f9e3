"""Writing small container images and pushing them to a registry, by the OCI image and distribution specs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..labkit.report import LabError

_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Layer:
    """A file system layer being written; all times and owners are zero, so that its digest is stable."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._names: set[str] = set()

    def _add(self, name: str, kind: bytes, mode: int, data: bytes = b"", target: str = "") -> None:
        if name in self._names:
            return
        parent = name.rpartition("/")[0]
        if parent:
            self.directory(parent)
        self._names.add(name)
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(data), target
        self._tar.addfile(entry, io.BytesIO(data))

    def directory(self, name: str, mode: int = 0o755) -> None:
        """Add a directory, and its parents, if they are not there."""
        self._add(name, tarfile.DIRTYPE, mode)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link, if nothing of that name is there."""
        self._add(name, tarfile.SYMTYPE, 0o777, target=target)

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        """Add a regular file, if nothing of that name is there."""
        self._add(name, tarfile.REGTYPE, mode, data)

    def packed(self) -> tuple[bytes, str]:
        """Return the compressed layer and the digest of the uncompressed one."""
        self._tar.close()
        plain = self._buffer.getvalue()
        return gzip.compress(plain, 6, mtime=0), _digest(plain)


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Registry:
    """A registry on plain HTTP, HOST:PORT."""

    def __init__(self, address: str) -> None:
        self._address = address
        # No proxy from the environment: the registry is on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def _ask(self, method: str, url: str, data: bytes | None = None, kind: str | None = None) -> Any:
        headers = {"Content-Type": kind} if kind else {}
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=30) as answer:
                answer.read()
                return answer
        except urllib.error.HTTPError as error:
            raise LabError(
                f"the registry answers {error.code} to {method} {url}: {error.read()[:300]!r}"
            ) from error

    def _blob(self, name: str, data: bytes) -> str:
        digest = _digest(data)
        begun = self._ask("POST", f"http://{self._address}/v2/{name}/blobs/uploads/", b"")
        place = begun.headers["Location"]
        joint = "&" if "?" in place else "?"
        self._ask("PUT", f"{place}{joint}digest={digest}", data, "application/octet-stream")
        return digest

    def push(
        self, name: str, tag: str, layers: list[tuple[bytes, str]], config: Mapping[str, object]
    ) -> None:
        """Push an image; `config` is the image's run configuration (Cmd, Env, Entrypoint, WorkingDir...)."""
        image = {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [plain for _, plain in layers]},
        }
        written = json.dumps(image).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "size": len(written), "digest": self._blob(name, written)},
            "layers": [
                {"mediaType": _LAYER, "size": len(packed), "digest": self._blob(name, packed)}
                for packed, _ in layers
            ],
        }
        url = f"http://{self._address}/v2/{name}/manifests/{tag}"
        self._ask("PUT", url, json.dumps(manifest).encode(), _MANIFEST)


def add_from_root(layer: Layer, root: Path, name: str) -> None:
    """Add one path of a merged-/usr Debian root, as it is there; a path that was excluded is skipped."""
    parts = Path(name.strip("/")).parts
    if not parts:
        return
    if parts[0] in ("bin", "sbin", "lib", "lib64"):
        parts = ("usr", *parts)
    inner, path = "/".join(parts), root.joinpath(*parts)
    if path.is_symlink():
        layer.link(inner, str(path.readlink()))
    elif path.is_dir():
        layer.directory(inner)
    elif path.is_file():
        layer.file(inner, path.read_bytes(), path.stat().st_mode & 0o755)
