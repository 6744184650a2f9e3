"""Where the plugin API listens: a unix socket that knows its peers, or TCP with a bearer token."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import urlsplit

import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from slurmrest_adapter.domain.errors import ConfigError

log = structlog.get_logger(__name__)

DEFAULT_PORT = 4001
_PEER = struct.Struct("3i")  # pid, uid, gid (unix(7), SO_PEERCRED)


def bind(address: str, allowed_uids: Collection[int]) -> socket.socket:
    """A listening socket.

    Args:
        address: ``unix:///path``, or ``http://HOST[:PORT]`` (port 4001 by default).
        allowed_uids: who may connect to a unix socket; everybody can reach one that others than
            root may use, so each peer is checked when it connects.

    Raises:
        ConfigError: the address cannot be used.
    """
    url = urlsplit(address)
    try:
        if url.scheme == "unix":
            return _bind_unix(Path(url.path), allowed_uids)
        if url.scheme != "http" or not url.hostname:
            raise ConfigError(f"listen.plugin: {address!r} is neither unix:///path nor http://HOST:PORT")
        family = socket.AF_INET6 if ":" in url.hostname else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((url.hostname, url.port or DEFAULT_PORT))
        return listening
    except (OSError, ValueError) as error:
        raise ConfigError(f"listen.plugin: cannot listen on {address}: {error}") from error


def _bind_unix(path: Path, allowed_uids: Collection[int]) -> socket.socket:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if path.exists() or path.is_symlink():
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"listen.plugin: {path} exists and is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(path)) == 0:
                raise ConfigError(f"listen.plugin: another process listens on {path}")
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
    return read


def server(app: FastAPI, allowed_uids: Collection[int]) -> uvicorn.Server:
    """The server; `run(sockets=[…])` serves until SIGTERM or SIGINT."""
    allowed = frozenset(allowed_uids)

    class Checked(H11Protocol):
        """Drops a unix peer who is not on the list before a byte is read."""

        def connection_made(self, transport: object) -> None:
            peer = transport.get_extra_info("socket")  # type: ignore[attr-defined]
            if peer is not None and peer.family == socket.AF_UNIX:
                _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
                if uid not in allowed:
                    log.warning("dropped a connection", uid=uid, allowed=sorted(allowed))
                    transport.abort()  # type: ignore[attr-defined]
                    return
            super().connection_made(transport)  # type: ignore[arg-type]

    config = uvicorn.Config(
        app,
        http=Checked,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=5,
        server_header=False,
    )
    return uvicorn.Server(config)
