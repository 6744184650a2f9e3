"""Posting an event as the plugin does: for a spool that is delivered later, and for self-tests."""

from __future__ import annotations

import http.client
import socket
from urllib.parse import urlsplit

from slurmrest_adapter.domain.errors import AdapterError
from slurmrest_adapter.domain.spank import EVENTS_PATH
from slurmrest_adapter.sources.spank import SIGNATURE_HEADER

TIMEOUT_SECONDS = 10.0


class NotDelivered(AdapterError):
    """Nobody answered at the address of events."""


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def path_of(address: str) -> str:
    """The HTTP path of ``spank.events``; on a unix socket, and without one, it is the usual one."""
    url = urlsplit(address)
    return url.path if url.scheme == "http" and url.path.strip("/") else EVENTS_PATH


def post(address: str, body: bytes, signature: str, timeout: float = TIMEOUT_SECONDS) -> int:
    """The status code that the event is answered with.

    Args:
        address: as ``spank.events`` has it.
        timeout: seconds, of each step.

    Raises:
        NotDelivered: there was no answer; the event may have arrived all the same, which a second
            delivery does not mind.
    """
    headers = {"Content-Type": "application/json", SIGNATURE_HEADER: signature}
    return _ask(address, "POST", body, headers, timeout)


def probe(address: str, timeout: float = TIMEOUT_SECONDS) -> int:
    """The status code of a question that the listener for events answers with 405 and counts nowhere.

    Raises:
        NotDelivered: there was no answer.
    """
    return _ask(address, "GET", None, {}, timeout)


def _ask(address: str, method: str, body: bytes | None, headers: dict[str, str], timeout: float) -> int:
    url = urlsplit(address)
    if url.scheme == "unix":
        connection: http.client.HTTPConnection = _Unix(url.path, timeout)
    else:
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=timeout)
    try:
        connection.request(method, path_of(address), body, {**headers, "Connection": "close"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise NotDelivered(f"{address}: {words}") from error
    finally:
        connection.close()
