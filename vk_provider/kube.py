"""The Kubernetes API in raw dictionaries.

The official client brings the configuration, the credentials and the connection pool; its models
are left alone, because they drop every field they do not know (`_preload_content=False` says the
same for one call). Redirects and hidden retries are off: a retry is decided where it is known to
be harmless.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import kubernetes.client
import kubernetes.config
import urllib3
from kubernetes.client import rest

from slurmrest_adapter.domain.errors import AdapterError, ConfigError

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CONNECT_S, READ_S = 5.0, 30.0
POOL = 16


class KubeError(AdapterError):
    """The API server did not do what was asked."""


class Unreachable(KubeError):
    """No answer; says nothing about what it has done."""


class Refused(KubeError):
    """The API server answered with an error.

    Attributes:
        status: HTTP status, or the code of a watch's ERROR event.
        reason: its machine-readable reason (NotFound, Conflict, Expired …), "" if none.
    """

    def __init__(self, what: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{what}: {status} {reason}: {message}" if message else f"{what}: {status} {reason}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFound(Refused):
    """404: no such object."""


class Conflict(Refused):
    """409: it exists already, or is another one than was meant."""


class Forbidden(Refused):
    """403: this identity may not."""


class Gone(Refused):
    """410: the watch asked for a past the API server has forgotten."""


class Throttled(Refused):
    """429 or a 5xx: not now; asking again is right."""


def configuration(kubeconfig: Path | None) -> Any:
    """The client configuration from a kubeconfig file, or of the pod this runs in.

    Raises:
        ConfigError: the file cannot be used, or there is none and this is no pod.
    """
    config = kubernetes.client.Configuration()
    config.connection_pool_maxsize = POOL
    try:
        if kubeconfig is not None:
            kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]
                str(kubeconfig), client_configuration=config, persist_config=False
            )
        else:
            kubernetes.config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=config
            )
    except (kubernetes.config.ConfigException, OSError, ValueError) as error:
        where = f"node.kubeconfig {kubeconfig}" if kubeconfig else "node.kubeconfig is not set and in-cluster"
        raise ConfigError(f"{where}: {error}") from error
    return config


def path(*parts: str) -> str:
    """Join a path, each part quoted: a name never becomes two."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def pod_path(namespace: str, name: str, *rest_of_it: str) -> str:
    """``/api/v1/namespaces/NS/pods/NAME[/…]``."""
    return path("api", "v1", "namespaces", namespace, "pods", name, *rest_of_it)


class KubeClient:
    """Calls the API server; safe for threads."""

    def __init__(self, config: Any, connect_s: float = CONNECT_S, read_s: float = READ_S) -> None:
        self._config = config
        self._host = str(config.host).rstrip("/")
        self._pool: urllib3.PoolManager = rest.RESTClientObject(config).pool_manager
        self._connect_s, self._read_s = connect_s, read_s

    @property
    def ca_file(self) -> Path | None:
        """The cluster's CA certificate, None when the configuration names none."""
        return Path(self._config.ssl_ca_cert) if self._config.ssl_ca_cert else None

    def get(self, where: str, **query: str) -> dict[str, Any]:
        """Read one object or a list."""
        return self._call("GET", where, query=query)

    def create(self, where: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST an object."""
        return self._call("POST", where, body)

    def patch(self, where: str, body: Mapping[str, Any], kind: str = MERGE) -> dict[str, Any]:
        """PATCH an object with a dictionary; `kind` is MERGE or STRATEGIC."""
        return self._call("PATCH", where, body, content_type=kind)

    def delete(self, where: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """DELETE with options in the body: the API server ignores the query when there is one."""
        return self._call("DELETE", where, body)

    @contextmanager
    def watch(
        self, where: str, query: Mapping[str, str], read_s: float
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """An open watch: iterate over its events until the API server ends it.

        Raises:
            Gone, Refused: the API server said so, at the start or in an ERROR event.
            Unreachable: the connection broke, or was silent for `read_s` seconds.
        """
        what = f"watch {where}"
        answer = self._send("GET", where, None, query, "application/json", read_s)
        try:
            if answer.status != 200:
                raise _refusal(what, answer.status, _read(what, answer))
            yield _events(what, answer)
        finally:
            answer.close()

    def close(self) -> None:
        """Drop idle connections."""
        self._pool.clear()

    def _call(
        self,
        method: str,
        where: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        what = f"{method} {where}"
        answer = self._send(method, where, body, query or {}, content_type, self._read_s)
        raw = _read(what, answer)
        answer.release_conn()
        if not 200 <= answer.status < 300:
            raise _refusal(what, answer.status, raw)
        found = _json(raw)
        if found is None:
            raise Unreachable(f"{what}: the answer is no JSON object")
        return found

    def _send(
        self,
        method: str,
        where: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str],
        content_type: str,
        read_s: float,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "vk-provider"}
        for setting in self._config.auth_settings().values():
            headers[str(setting["key"])] = str(setting["value"])
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._host + where + (f"?{urlencode(query)}" if query else "")
        try:
            return self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=self._connect_s, read=read_s),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"{method} {where}: {_words(error)}") from error


def _read(what: str, answer: urllib3.BaseHTTPResponse) -> bytes:
    try:
        return answer.read()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"{what}: the answer broke off: {_words(error)}") from error


def _events(what: str, answer: urllib3.BaseHTTPResponse) -> Iterator[dict[str, Any]]:
    rest_of_it = b""
    try:
        for chunk in answer.stream(65536, decode_content=True):
            *lines, rest_of_it = (rest_of_it + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield _event(what, line)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"{what}: {_words(error)}") from error


def _event(what: str, line: bytes) -> dict[str, Any]:
    event = _json(line)
    if event is None or not isinstance(event.get("object"), dict):
        raise Unreachable(f"{what}: an event is no JSON object")
    if event.get("type") == "ERROR":
        status = event["object"]
        raise _refusal(what, int(status.get("code") or 500), json.dumps(status).encode())
    return event


def _json(raw: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _refusal(what: str, status: int, raw: bytes) -> Refused:
    body = _json(raw) or {}
    kinds: dict[int, type[Refused]] = {
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        410: Gone,
        429: Throttled,
    }
    kind = kinds.get(status, Throttled if status >= 500 else Refused)
    return kind(what, status, str(body.get("reason") or ""), str(body.get("message") or ""))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
