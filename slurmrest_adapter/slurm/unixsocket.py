"""HTTP over a unix socket for requests, with the connections kept alive.

The address is a URL whose host is the quoted path of the socket: ``http+unix://%2Frun%2Frest.sock``.
It begins with "http" because requests encodes query parameters only for such schemes.
Only what finds a connection is replaced; sending is requests' own, so whatever watches or replaces
`HTTPAdapter.send` sees these calls too.
"""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

SCHEME = "http+unix"


def unix_url(path: str) -> str:
    """The URL under which requests reaches the socket at `path` (absolute)."""
    return f"{SCHEME}://{quote(path, safe='')}"


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, **kwargs: Any) -> None:
        super().__init__("localhost", **kwargs)
        self._path = path

    def _new_conn(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if isinstance(self.timeout, int | float):
            sock.settimeout(self.timeout)
        try:
            sock.connect(self._path)
        except TimeoutError as error:
            sock.close()
            raise ConnectTimeoutError(self, f"connecting to {self._path} timed out") from error
        except OSError as error:
            sock.close()
            raise NewConnectionError(self, f"cannot connect to {self._path}: {error}") from error
        return sock


class _UnixPool(HTTPConnectionPool):
    def __init__(self, path: str, maxsize: int) -> None:
        super().__init__("localhost", maxsize=maxsize, block=True)
        self._path = path

    def _new_conn(self) -> _UnixConnection:
        self.num_connections += 1
        return _UnixConnection(self._path, timeout=self.timeout.connect_timeout)


class UnixAdapter(HTTPAdapter):
    """Serves one socket with at most `maxsize` connections; more callers wait for a free one."""

    def __init__(self, url: str, maxsize: int) -> None:
        self._unix_pool = _UnixPool(unquote(urlsplit(url).netloc), maxsize)
        super().__init__()

    def get_connection_with_tls_context(
        self, request: Any, verify: Any, proxies: Any = None, cert: Any = None
    ) -> HTTPConnectionPool:
        """The one pool, whatever the arguments: a socket has no TLS and no proxy."""
        return self._unix_pool

    def close(self) -> None:
        """Closes the idle connections."""
        self._unix_pool.close()
        super().close()
