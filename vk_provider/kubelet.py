"""The kubelet API: what the API server asks of a node over TLS.

h11 on asyncio rather than an ASGI server: the client's certificate has to be seen for
authorization, a reader that leaves has to end the log at once, and exec's upgrades will need the
bare connection. It runs in a thread of its own; what asks the API server goes to other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import h11
import structlog

from slurmrest_adapter.domain.errors import Invalid
from vk_provider import status
from vk_provider.authz import Authorizer, identity
from vk_provider.cache import Pod, PodCache, names_of
from vk_provider.containers import state_of
from vk_provider.kube import KubeError
from vk_provider.logquery import LogOptions, log_options, logs_request
from vk_provider.logstream import open_logs
from vk_provider.pods import rfc3339_now
from vk_provider.sidecar import SidecarClient, SidecarUnreachable, bearer

log = structlog.get_logger(__name__)

HEADERS_S = 30.0
_CHUNK = 65536
_NOT_YET = frozenset({"exec", "attach", "portForward", "run", "stats", "metrics", "logs", "checkpoint"})


class Answer(Exception):
    """An answer that is no stream: status and text."""

    def __init__(self, code: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        super().__init__(text)
        self.code, self.text, self.kind = code, text, kind


class KubeletServer:
    """Serves in its own thread between `start` and `stop`."""

    def __init__(
        self,
        cache: PodCache,
        sidecar: SidecarClient,
        authorizer: Authorizer,
        tls: ssl.SSLContext,
        address: str,
        port: int,
    ) -> None:
        self._cache, self._sidecar, self._authorizer = cache, sidecar, authorizer
        self._tls, self._address, self.port = tls, address, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kubelet-api", daemon=True)
        self._begun = threading.Event()
        self._error: OSError | None = None
        self._stopped: asyncio.Event | None = None

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: the port cannot be had.
        """
        self._thread.start()
        self._begun.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Close the port and every stream."""
        if self._stopped is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        try:
            server = await asyncio.start_server(
                self._connection, self._address, self.port, ssl=self._tls, ssl_handshake_timeout=10
            )
        except OSError as error:
            self._error = error
            return
        finally:
            if self._error is not None:
                self._begun.set()
        self.port = server.sockets[0].getsockname()[1]
        self._begun.set()
        await self._stopped.wait()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        try:
            async with asyncio.timeout(HEADERS_S):
                request = await _request(reader, connection)
            if request is not None:
                await self._respond(request, connection, reader, writer)
        except (OSError, TimeoutError, h11.ProtocolError, ssl.SSLError):
            pass  # the reader has left, or spoke something else
        finally:
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(5):
                    await writer.wait_closed()

    async def _respond(
        self,
        request: h11.Request,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            where = await self._admitted(request, writer)
            parts = [unquote(part) for part in where.path.strip("/").split("/")]
            if parts[0] != "containerLogs" or request.method != b"GET":
                raise self._plain(request.method.decode(), parts)
            pod, container, options = self._wanted_log(parts, parse_qs(where.query, keep_blank_values=True))
            await self._stream(pod, container, options, connection, reader, writer)
        except Answer as answer:
            body = answer.text.encode()
            writer.write(_head(connection, answer.code, answer.kind, len(body)))
            writer.write(connection.send(h11.Data(data=body)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            await writer.drain()

    async def _admitted(self, request: h11.Request, writer: asyncio.StreamWriter) -> SplitResult:
        where = urlsplit(request.target.decode("ascii", "replace"))
        user, groups = identity(writer.get_extra_info("peercert") or {})
        try:
            allowed = await asyncio.to_thread(
                self._authorizer.allows, user, groups, request.method.decode(), where.path
            )
        except KubeError as error:
            log.warning("kubelet API: authorization not known", user=user, error=str(error))
            raise Answer(500, "the API server could not be asked whether you may") from error
        if not allowed:
            raise Answer(403, f"Forbidden (user={user})")
        return where

    def _plain(self, method: str, parts: list[str]) -> Answer:
        """The answers that are no streams."""
        if method == "GET":
            if parts == ["healthz"]:
                return Answer(200, "ok")
            if parts in (["pods"], ["runningpods"]):
                pods = self._cache.all()
                if parts == ["runningpods"]:
                    pods = [pod for pod in pods if not status.is_finished(pod)]
                listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}
                return Answer(200, json.dumps(listed), "application/json")
        elif parts[0] in ("containerLogs", "healthz", "pods", "runningpods"):
            return Answer(405, f"{method} is not for {parts[0]}")
        if parts[0] in _NOT_YET:
            return Answer(501, f"{parts[0]} is not supported by this node")
        return Answer(404, "404 page not found")

    def _wanted_log(self, parts: list[str], query: dict[str, list[str]]) -> tuple[Pod, str, LogOptions]:
        if len(parts) != 4:
            raise Answer(404, "404 page not found")
        _, namespace, name, container = parts
        pod = self._cache.named(namespace, name)
        if pod is None:
            raise Answer(404, f'pod "{name}" not found')
        try:
            options = log_options(query)
        except Invalid as error:
            raise Answer(422, str(error)) from error
        spec, known = pod.get("spec") or {}, pod.get("status") or {}
        named = {c.get("name") for group in ("initContainers", "containers") for c in spec.get(group) or ()}
        if container not in named:
            raise Answer(404, f'container "{container}" not found in pod "{name}"')
        told = [*(known.get("initContainerStatuses") or ()), *(known.get("containerStatuses") or ())]
        of_it: Mapping[str, Any] = next((each for each in told if each.get("name") == container), {})
        restarted = bool(of_it.get("restartCount")) or "terminated" in (of_it.get("lastState") or {})
        if options.previous and not restarted:
            raise Answer(400, f'previous terminated container "{container}" in pod "{name}" not found')
        if state_of(of_it) == "waiting" and not restarted and known.get("phase") in (None, "Pending"):
            reason = ((of_it.get("state") or {}).get("waiting") or {}).get("reason") or "ContainerCreating"
            raise Answer(400, f'container "{container}" in pod "{name}" is waiting to start: {reason}')
        return pod, container, options

    async def _stream(
        self,
        pod: Pod,
        container: str,
        options: LogOptions,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if options.tail_lines == 0 and not options.follow:
            raise Answer(200, "")
        asked = logs_request(pod, container, options, rfc3339_now())
        try:
            async with open_logs(self._sidecar.address, bearer(self._sidecar.token_file), asked) as stream:
                if stream.status != 200:
                    code = stream.status if 400 <= stream.status < 500 and stream.status != 401 else 502
                    raise Answer(code, await stream.words())
                writer.write(_head(connection, 200, "text/plain; charset=utf-8", None))
                await writer.drain()
                await _until_left(reader, _pump(stream.body, options.limit_bytes, connection, writer))
        except SidecarUnreachable as error:
            namespace, name = names_of(pod)
            log.warning("log broke off", pod=f"{namespace}/{name}", container=container, error=str(error))
            if connection.our_state is h11.SEND_RESPONSE:
                raise Answer(502, "the sidecar cannot be asked for logs just now") from error
            # Closing without the last chunk tells the reader that this is not the log's end.


async def _request(reader: asyncio.StreamReader, connection: h11.Connection) -> h11.Request | None:
    """The request's head; its body, if it has one, is read and left aside."""
    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif not isinstance(event, h11.Data):
            return None


def _head(connection: h11.Connection, code: int, kind: str, length: int | None) -> bytes:
    size = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
    headers = [("Content-Type", kind), size, ("Connection", "close")]
    return connection.send(h11.Response(status_code=code, headers=headers)) or b""


async def _pump(
    body: AsyncIterator[bytes], limit: int | None, connection: h11.Connection, writer: asyncio.StreamWriter
) -> None:
    left = limit
    async for piece in body:
        if left is not None:
            piece = piece[:left]
            left -= len(piece)
        if piece:
            writer.write(connection.send(h11.Data(data=piece)) or b"")
            await writer.drain()
        if left == 0:
            break
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


async def _until_left(reader: asyncio.StreamReader, pump: Coroutine[Any, Any, None]) -> None:
    """Run the pump until it ends or the reader of the log leaves."""
    pumping = asyncio.ensure_future(pump)
    leaving = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({pumping, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if pumping.done():
            pumping.result()
    finally:
        for task in (pumping, leaving):
            task.cancel()
        await asyncio.gather(pumping, leaving, return_exceptions=True)
