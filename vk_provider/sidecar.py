"""The sidecar, in interLink's plugin protocol.

Bodies travel on GET too, as interLink sends them. Every call has time-outs and follows no
redirect; proxies of the environment are not asked, because the sidecar is next door. The token
is read for each request, so a new one is used at once.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
import requests.adapters
import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from slurmrest_adapter.domain.errors import AdapterError, ConfigError
from vk_provider.cache import Pod

CONNECT_S, READ_S, CREATE_S = 5.0, 15.0, 60.0
POOL = 16
DEFAULT_PORT = 4001
# "Not now" or "not you" (our token): neither says anything about the pod.
_NOT_NOW = frozenset({401, 408, 425, 429, 502, 503, 504})
_MOST_WORDS = 4000
_KUBECTLS = "kubectl.kubernetes.io/last-applied-configuration"  # the whole pod once more


class SidecarUnreachable(AdapterError):
    """No usable answer: says nothing about the pod."""


class SidecarRefused(AdapterError):
    """The sidecar answered that it will not do this; the text is its own."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the sidecar listens.

    Attributes:
        url: ``http(s)://HOST:PORT``; for a unix socket a stand-in that names no host.
        socket: path of the unix socket, None for TCP.
    """

    url: str
    socket: str | None = None


def address(listen: str) -> Address:
    """Parse ``listen.plugin``: ``unix:///PATH``, ``http(s)://HOST[:PORT]`` or ``HOST[:PORT]``.

    Raises:
        ConfigError: it is none of these.
    """
    scheme, found, rest = listen.partition("://")
    if not found:
        scheme, rest = "http", listen
    if scheme in ("unix", "http+unix") and rest.startswith("/"):
        return Address("http://sidecar", unquote(rest))
    if scheme == "tcp":
        scheme = "http"
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        port = parts.port or DEFAULT_PORT
    except ValueError:
        parts, port = urlsplit(""), 0
    if scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ConfigError(f"listen.plugin: {listen!r} is no unix:///PATH, http(s)://HOST:PORT or HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return Address(f"{scheme}://{host}:{port}")


def bearer(token_file: Path | None) -> dict[str, str]:
    """The Authorization header; empty without a file.

    Raises:
        SidecarUnreachable: the file cannot be read just now.
    """
    if token_file is None:
        return {}
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SidecarUnreachable(f"listen.token_file {token_file} cannot be read: {error}") from error
    return {"Authorization": f"Bearer {token}"}


class SidecarClient:
    """Safe for threads: one small pool of kept-alive connections."""

    def __init__(self, where: Address, token_file: Path | None = None, read_s: float = READ_S) -> None:
        self.address = where
        self.token_file = token_file
        self._read_s = read_s
        self._session = requests.Session()
        self._session.trust_env = False
        adapter = (
            _UnixAdapter(where.socket)
            if where.socket
            else requests.adapters.HTTPAdapter(pool_maxsize=POOL, pool_block=True)
        )
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def create(self, payload: Mapping[str, Any]) -> str:
        """Hand over one pod (`RetrievedPodData`); answers the job's id. Repeating it is harmless.

        Raises:
            SidecarRefused: the pod cannot become a job; the text says why.
            SidecarUnreachable: no answer; the job may exist all the same.
        """
        answer = self._call("POST", "/create", payload, CREATE_S)
        if isinstance(answer, list):  # older plugins wrap it
            answer = answer[0] if answer else None
        if not isinstance(answer, dict):
            raise SidecarUnreachable("POST /create: the answer is no object with PodUID and PodJID")
        return str(answer.get("PodJID") or "")

    def delete(self, pod: Pod) -> None:
        """Ask for the job's end; an unknown pod is fine. Repeating it is harmless."""
        self._call("POST", "/delete", pod, self._read_s, want_json=False)

    def status(self, pods: Sequence[Pod]) -> dict[str, Mapping[str, Any]]:
        """The status of many pods by UID; a pod that the sidecar does not know has no entry."""
        if not pods:
            return {}  # an empty list would be the ping
        answer = self._call("GET", "/status", [slim(pod) for pod in pods], self._read_s)
        if not isinstance(answer, list):
            raise SidecarUnreachable("GET /status: the answer is no list")
        entries = [entry for entry in answer if isinstance(entry, dict) and is_known(entry)]
        return {str(entry.get("UID") or ""): entry for entry in entries}

    def ping(self) -> Mapping[str, Any]:
        """Is it there, and what does it have to offer?"""
        answer = self._call("GET", "/status", [], self._read_s)
        if not isinstance(answer, dict):
            raise SidecarUnreachable("GET /status (ping): the answer is no object")
        return answer

    def close(self) -> None:
        """Drop idle connections."""
        self._session.close()

    def _call(self, method: str, where: str, body: Any, read_s: float, want_json: bool = True) -> Any:
        what = f"{method} {where}"
        try:
            answer = self._session.request(
                method,
                self.address.url + where,
                json=body,
                headers=bearer(self.token_file),
                timeout=(CONNECT_S, read_s),
                allow_redirects=False,
            )
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise SidecarUnreachable(f"{what}: {type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            words = answer.text.strip()[:_MOST_WORDS]
            if answer.status_code in _NOT_NOW or 300 <= answer.status_code < 400:
                raise SidecarUnreachable(f"{what}: {answer.status_code}: {words}")
            raise SidecarRefused(words or f"the sidecar answered {answer.status_code} without a word")
        if not want_json:
            return None
        try:
            return answer.json()
        except ValueError as error:
            raise SidecarUnreachable(f"{what}: the answer is no JSON") from error


def is_known(entry: Mapping[str, Any]) -> bool:
    """Does the sidecar have a job, or at least a word, for this pod?

    One that knows nothing answers no containers, or containers of unknown status.
    """
    groups = [entry.get("initContainers"), entry.get("containers")]
    told = [each for group in groups if isinstance(group, list) for each in group]
    return bool(entry.get("JID")) or not all(map(_says_unknown, told))


def _says_unknown(status: Any) -> bool:
    waiting = status
    for key in ("state", "waiting"):
        waiting = waiting.get(key) if isinstance(waiting, dict) else None
    return isinstance(waiting, dict) and waiting.get("reason") == "ContainerStatusUnknown"


def slim(pod: Pod) -> dict[str, Any]:
    """What identifies a pod: a status question about a thousand pods stays small."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **{key: metadata.get(key) for key in ("name", "namespace", "uid")},
            "annotations": {k: v for k, v in (metadata.get("annotations") or {}).items() if k != _KUBECTLS},
        },
        "spec": {
            group: [{"name": c.get("name"), "image": c.get("image")} for c in _containers(spec, group)]
            for group in ("initContainers", "containers")
        },
    }


def _containers(spec: Mapping[str, Any], group: str) -> Iterable[Mapping[str, Any]]:
    return spec.get(group) or ()


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, **options: Any) -> None:
        super().__init__("sidecar", **options)
        self._path = path

    def connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(CONNECT_S)
            connection.connect(self._path)
            connection.settimeout(self.timeout)
        except OSError:
            connection.close()
            raise
        self.sock = connection


class _UnixPool(HTTPConnectionPool):
    def __init__(self, path: str) -> None:
        super().__init__("sidecar", maxsize=POOL, block=True)
        self._path = path

    def _new_conn(self) -> Any:
        return _UnixConnection(self._path, timeout=self.timeout.connect_timeout)


class _UnixAdapter(requests.adapters.HTTPAdapter):
    """Requests over one unix socket, whatever host the URL names."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._unix_pool = _UnixPool(path)

    def get_connection_with_tls_context(self, *_args: Any, **_options: Any) -> Any:
        return self._unix_pool

    def close(self) -> None:
        super().close()
        self._unix_pool.close()
