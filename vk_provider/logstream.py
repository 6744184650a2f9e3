"""``GET /getLogs`` of the sidecar as a stream.

Asynchronous, unlike the rest of the sidecar's client: a followed log may last for days and has to
end at once when its reader leaves, which a cancelled task does and a blocked thread does not.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import h11

from vk_provider.sidecar import CONNECT_S, Address, SidecarUnreachable

FIRST_BYTE_S = 35.0  # interLink's rule is 30 s
_CHUNK = 65536
_MOST_WORDS = 4000


class LogStream:
    """One answer: its status, and its body in pieces as they come."""

    def __init__(self, status: int, body: AsyncIterator[bytes]) -> None:
        self.status = status
        self.body = body

    async def words(self) -> str:
        """The whole body of an error, cut to a readable length."""
        found = b""
        async for piece in self.body:
            found += piece
            if len(found) > _MOST_WORDS:
                break
        return found[:_MOST_WORDS].decode(errors="replace").strip()


@asynccontextmanager
async def open_logs(
    where: Address, headers: Mapping[str, str], request: Mapping[str, Any]
) -> AsyncIterator[LogStream]:
    """Ask for a log; leaving the context ends the stream.

    Args:
        where: the sidecar.
        headers: with the token; see `sidecar.bearer`.
        request: see `logquery.logs_request`.

    Raises:
        SidecarUnreachable: no answer in time, or one that is no HTTP.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await _connect(where)
            status, connection = await _ask(reader, writer, where, headers, request)
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            raise SidecarUnreachable(f"GET /getLogs: {type(error).__name__}: {error}") from error
        yield LogStream(status, _body(reader, connection))
    finally:
        if writer is not None:
            writer.close()


async def _connect(where: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if where.socket:
        return await asyncio.open_unix_connection(where.socket)
    parts = urlsplit(where.url)
    context = ssl.create_default_context() if parts.scheme == "https" else None
    return await asyncio.open_connection(parts.hostname, parts.port, ssl=context)


async def _ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    where: Address,
    headers: Mapping[str, str],
    request: Mapping[str, Any],
) -> tuple[int, h11.Connection]:
    connection = h11.Connection(h11.CLIENT)
    body = json.dumps(request).encode()
    head = h11.Request(
        method="GET",
        target="/getLogs",
        headers=[
            ("Host", urlsplit(where.url).netloc),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *headers.items(),
        ],
    )
    for part in (head, h11.Data(data=body), h11.EndOfMessage()):
        writer.write(connection.send(part) or b"")
    async with asyncio.timeout(FIRST_BYTE_S):
        await writer.drain()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(_CHUNK))
            elif isinstance(event, h11.Response):
                return event.status_code, connection
            elif not isinstance(event, h11.InformationalResponse):
                raise OSError("the connection was closed before an answer came")


async def _body(reader: asyncio.StreamReader, connection: h11.Connection) -> AsyncIterator[bytes]:
    while True:
        try:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(_CHUNK))
                continue
        except (OSError, h11.RemoteProtocolError) as error:
            raise SidecarUnreachable(f"GET /getLogs broke off: {error}") from error
        if isinstance(event, h11.Data):
            yield bytes(event.data)
        else:
            return
