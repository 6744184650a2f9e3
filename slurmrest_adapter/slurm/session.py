"""One small bounded pool of kept-alive connections to slurmrestd.

slurmrestd serves 123 connections and lets further ones hang (facts, "Transport"), so the pool is
bounded and callers wait for a free connection. A token in a header would travel with a redirect,
and requests also reads ``.netrc`` and proxy variables: all three are off here.

This module knows about reaching the daemon, not about what its answers mean (see `answers`).
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from slurmrest_adapter import __version__
from slurmrest_adapter.domain.errors import ConfigError, Unavailable
from slurmrest_adapter.slurm.unixsocket import UnixAdapter, unix_url

_AVOID_FAILED_SECONDS = 30.0


class AnswerLost(Unavailable):
    """The request may have reached Slurm, its answer did not reach us.

    For a question that is the same as `Unavailable`; for a submit the job may exist.
    """


@dataclass(frozen=True, slots=True)
class _Endpoint:
    shown: str  # as configured, for messages
    url: str  # as requests takes it


class Session:
    """Sends requests to the first endpoint that can be reached. Safe for use by many threads.

    Args:
        endpoints: ``http://host:port``, ``https://…`` or ``unix:///path``, in order of preference.
        connect_s, read_s: time-outs of every call, in seconds.
        pool: connections to one endpoint at most.
        ca_file: certificates to trust for https; None trusts the system's usual set.
        clock: monotonic seconds, for tests.
    Raises:
        ConfigError: an endpoint is not one of the three forms.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        connect_s: float = 5.0,
        read_s: float = 30.0,
        pool: int = 8,
        ca_file: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not endpoints:
            raise ConfigError("slurm.endpoints: at least one is needed")
        if pool < 1:
            raise ConfigError(f"slurm.pool: {pool} connections are too few")
        self._endpoints = tuple(_parse(text) for text in endpoints)
        self._timeout = (connect_s, read_s)
        self._clock = clock
        self._failed_at: dict[_Endpoint, float] = {}
        self._lock = threading.Lock()
        self._http = requests.Session()
        self._http.trust_env = False
        self._http.verify = ca_file or True
        for scheme in ("http://", "https://"):
            self._http.mount(scheme, HTTPAdapter(pool_maxsize=pool, pool_block=True))
        for endpoint in self._endpoints:
            if endpoint.url.startswith("http+unix:"):
                self._http.mount(endpoint.url, UnixAdapter(endpoint.url, pool))

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Sequence[tuple[str, str]] = (),
        body: object = None,
        headers: Mapping[str, str],
        repeatable: bool = False,
    ) -> requests.Response:
        """One call; its answer, whatever its status, with the body read.

        Args:
            method, path: ``GET``, ``/slurm/v0.0.42/ping/``.
            params: query parameters; names may repeat.
            body: made JSON when not None.
            headers: of this call alone, the identity among them; nothing of it is kept.
            repeatable: asking twice does no harm, so a connection that slurmrestd closed under
                us is no error: the call is sent once more.
        Raises:
            Unavailable: no endpoint could be reached; nothing was sent.
            AnswerLost: sent, or partly; no whole answer came.
        """
        all_headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"slurmrest-adapter/{__version__}",
            **headers,
        }
        data = None
        if body is not None:
            data = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
            all_headers["Content-Type"] = "application/json"  # exactly so: a charset is refused
        failures: list[str] = []
        for endpoint in self._in_order():
            # Prepared apart from the session: nothing of its state (cookies, authentication) goes along.
            prepared = requests.Request(
                method, endpoint.url + path, params=list(params), data=data, headers=all_headers
            ).prepare()
            failure = self._try(endpoint, prepared)
            if isinstance(failure, _Failure) and failure.stale and repeatable:
                failure = self._try(endpoint, prepared)
            if isinstance(failure, requests.Response):
                return failure
            text = f"{endpoint.shown}: {failure.words}"
            if failure.sent:
                # Raised here, outside of any except block: the library's exception holds the
                # request and its headers, and must not hang on ours.
                behind = daemon_behind(prepared.path_url)
                raise AnswerLost(f"no answer from slurmrestd, which had to ask {behind}, at {text}")
            failures.append(text)
        raise Unavailable(f"cannot reach slurmrestd at {'; '.join(failures)}")

    def close(self) -> None:
        """Closes the idle connections."""
        self._http.close()

    def _try(self, endpoint: _Endpoint, prepared: requests.PreparedRequest) -> requests.Response | _Failure:
        try:
            response = self._http.send(prepared, timeout=self._timeout, allow_redirects=False)
        except requests.RequestException as error:
            failure = _explain(error, self._timeout)
        except HTTPError as error:  # urllib3's, where requests forgets to wrap it
            failure = _explain(error, self._timeout)
        else:
            with self._lock:
                self._failed_at.pop(endpoint, None)
            return response
        if not failure.stale:  # an idle connection that was closed says nothing about the daemon
            with self._lock:
                self._failed_at[endpoint] = self._clock()
        return failure

    def _in_order(self) -> Iterator[_Endpoint]:
        """As configured, but those that lately could not be reached come last."""
        now = self._clock()
        with self._lock:
            failed = {e for e, at in self._failed_at.items() if now - at < _AVOID_FAILED_SECONDS}
        yield from sorted(self._endpoints, key=lambda endpoint: endpoint in failed)


@dataclass(frozen=True, slots=True)
class _Failure:
    words: str
    sent: bool  # something of the request may have reached slurmrestd
    stale: bool = False  # closed before any answer, as happens to an idle connection


def daemon_behind(path: str) -> str:
    """The daemon that slurmrestd has to ask for an answer; an endpoint's own path may come first."""
    return "slurmdbd" if "/slurmdb/" in path else "slurmctld"


def _explain(error: Exception, timeout: tuple[float, float]) -> _Failure:
    """What went wrong, in words that hold nothing of the request."""
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _Failure(f"its TLS certificate is not trusted ({cause.verify_message})", sent=False)
        if isinstance(cause, NewConnectionError):
            return _Failure(_os_words(chain) or "cannot connect", sent=False)
        if isinstance(cause, ConnectTimeoutError):
            return _Failure(f"no connection within {timeout[0]:g} s", sent=False)
    if isinstance(error, requests.ReadTimeout):
        return _Failure(f"nothing within {timeout[1]:g} s", sent=True)
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return _Failure("the answer broke off", sent=True)
    if isinstance(error, requests.exceptions.SSLError):
        return _Failure("TLS failed", sent=True)
    return _Failure(
        f"connection lost{_prefixed(_os_words(chain))}",
        sent=True,
        stale=isinstance(error, requests.ConnectionError),
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    todo: list[object] = [error]
    while todo:
        found = todo.pop(0)
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        todo += [getattr(found, "reason", None), found.__cause__, found.__context__, *found.args]


def _os_words(chain: Sequence[BaseException]) -> str:
    for cause in chain:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
    return ""


def _prefixed(words: str) -> str:
    return f": {words}" if words else ""


def _parse(text: str) -> _Endpoint:
    parts = urlsplit(text)
    if parts.username or parts.password:
        raise ConfigError("slurm.endpoints: a name or password in the address is not used; give a token")
    if parts.query or parts.fragment:
        raise ConfigError(f"slurm.endpoints: {text!r} has a query or fragment")
    if parts.scheme == "unix":
        if parts.netloc or not parts.path.startswith("/") or parts.path == "/":
            raise ConfigError(f"slurm.endpoints: {text!r} is not unix:///path/of/socket")
        return _Endpoint(text, unix_url(parts.path))
    if parts.scheme in ("http", "https"):
        with contextlib.suppress(requests.RequestException):
            requests.Request("GET", text).prepare()
            return _Endpoint(text, text.rstrip("/"))
    raise ConfigError(f"slurm.endpoints: {text!r} is not http://, https:// or unix:///path")
