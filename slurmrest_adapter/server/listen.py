"""Where serve listens: a unix socket that knows its peers, or TCP with a bearer token."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from slurmrest_adapter.domain.errors import ConfigError

log = structlog.get_logger(__name__)

DEFAULT_PORT = 4001
PLUGIN = "listen.plugin"
_PEER = struct.Struct("3i")  # pid, uid, gid (unix(7), SO_PEERCRED)
_ENDING = (signal.SIGTERM, signal.SIGINT)


def split(address: str, key: str = PLUGIN) -> SplitResult:
    """The address taken apart.

    Args:
        key: the configuration's key, for errors.

    Raises:
        ConfigError: it is neither ``unix:///path`` nor ``http://HOST[:PORT]``.
    """
    try:
        url = urlsplit(address)
        good = url.path.startswith("/") if url.scheme == "unix" else url.scheme == "http" and url.hostname
        _ = url.port  # raises where it is no number
    except ValueError as error:
        raise ConfigError(f"{key}: {address!r}: {error}") from error
    if not good:
        raise ConfigError(f"{key}: {address!r} is neither unix:///path nor http://HOST:PORT")
    return url


def bind(address: str, allowed_uids: Collection[int], key: str = PLUGIN) -> socket.socket:
    """A listening socket.

    Args:
        address: ``unix:///path``, or ``http://HOST[:PORT]`` (port 4001 by default).
        allowed_uids: who may connect to a unix socket; everybody can reach one that others than
            root may use, so each peer is checked when it connects.
        key: the configuration's key, for errors.

    Raises:
        ConfigError: the address cannot be used.
    """
    url = split(address, key)
    try:
        if url.scheme == "unix":
            return _bind_unix(Path(url.path), allowed_uids, key)
        family = socket.AF_INET6 if ":" in (url.hostname or "") else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((url.hostname, DEFAULT_PORT if url.port is None else url.port))
        return listening
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key}: cannot listen on {address}: {error}") from error


def _bind_unix(path: Path, allowed_uids: Collection[int], key: str) -> socket.socket:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if path.exists() or path.is_symlink():
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{key}: {path} exists and is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise ConfigError(f"{key}: another process listens on {path}")
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    if set(allowed_uids) - {os.geteuid()}:
        path.chmod(0o666)
    return listening


def token_reader(path: Path) -> Callable[[], bytes]:
    """Gives the token in a file; read for each call, so that a renewed one counts at once.

    The reader raises too, when the file has gone since.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """

    def read() -> bytes:
        try:
            token = path.read_bytes().strip()
        except OSError as error:
            raise ConfigError(f"listen.token_file: {path} cannot be read: {error.strerror}") from error
        if not token:
            raise ConfigError(f"listen.token_file: {path} is empty")
        return token

    read()
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o007:
        log.warning(
            "every user of this host can act for all pods with the token: chmod 600",
            token_file=str(path),
            mode=f"{mode:04o}",
        )
    return read


class _Server(uvicorn.Server):
    """Ends on SIGTERM and SIGINT by returning from `run`, so that the caller can tidy up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own raises the signal again afterwards, which ends the process there and then."""
        if threading.current_thread() is not threading.main_thread():  # who alone may take signals
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def server(app: FastAPI, allowed_uids: Collection[int]) -> uvicorn.Server:
    """The server; `run(sockets=[…])` serves until SIGTERM or SIGINT."""
    allowed = frozenset(allowed_uids)

    class Checked(H11Protocol):
        """Drops a unix peer who is not on the list before a byte is read."""

        _dropped = False

        def connection_made(self, transport: object) -> None:
            peer = transport.get_extra_info("socket")  # type: ignore[attr-defined]
            if peer is not None and peer.family == socket.AF_UNIX:
                _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
                if uid not in allowed:
                    log.warning("dropped a connection", uid=uid, allowed=sorted(allowed))
                    self._dropped = True
                    transport.abort()  # type: ignore[attr-defined]
                    return
            super().connection_made(transport)  # type: ignore[arg-type]

        def connection_lost(self, exc: Exception | None) -> None:
            if not self._dropped:  # or it was never made, as far as uvicorn knows
                super().connection_lost(exc)

    config = uvicorn.Config(
        app,
        http=Checked,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
        server_header=False,
    )
    return _Server(config)
