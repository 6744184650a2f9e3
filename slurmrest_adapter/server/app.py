"""The plugin API over HTTP: interLink's wire, and health for probes.

Every handler is plain blocking code in a thread pool of its kind, see `pools`.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from slurmrest_adapter import __version__
from slurmrest_adapter.domain.errors import (
    AdapterError,
    ConfigError,
    Invalid,
    PodError,
    RefusedIdentity,
    Rejected,
)
from slurmrest_adapter.server.pools import Pools, run_in
from slurmrest_adapter.server.service import NotReady, Service

log = structlog.get_logger(__name__)

SESSION_HEADER = "InterLink-Http-Session"
# A ConfigMap and a Secret may have 1 MiB each, and a pod may have many.
BODY_LIMIT = 64 * 1024 * 1024
_OPEN = frozenset({"/healthz", "/readyz"})


def create_app(
    service: Service, token: Callable[[], bytes] | None = None, pools: Pools | None = None
) -> FastAPI:
    """The application.

    Args:
        token: gives the bearer token that every call but the probes must bring; None asks for
            none (a unix socket that checks its peers, or a site that wants it so).
        pools: the threads that requests are answered by; closed by who gave them.
    """
    # interLink publishes the API; one made up here would be another, with two names for one call.
    app = FastAPI(title="slurmrest-adapter plugin API", version=__version__, openapi_url=None)
    threads = pools or Pools()

    @app.middleware("http")
    async def edge(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        session = request.headers.get(SESSION_HEADER, "")
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(
            path=request.url.path, **({"session": session} if session else {})
        )
        if token is not None and request.url.path not in _OPEN:
            try:
                allowed = _allowed(request, token())
            except ConfigError as error:
                log.error("nobody can be admitted", error=str(error))
                return PlainTextResponse("the bearer token cannot be checked now\n", 503)
            if not allowed:
                return PlainTextResponse("a bearer token is needed, or this one is wrong\n", 401)
        response = await call(request)
        if session:
            response.headers[SESSION_HEADER] = session
        return response

    @app.exception_handler(AdapterError)
    async def ours(request: Request, error: AdapterError) -> Response:
        code = status_code(error)
        log.log(40 if code >= 500 else 30, "refused", error=str(error), code=code)
        return PlainTextResponse(f"{error}\n", code)

    @app.exception_handler(NotReady)
    async def not_ready(request: Request, error: NotReady) -> Response:
        return PlainTextResponse(f"{error}\n", 503)

    @app.post("/create")
    async def create(request: Request) -> Response:
        return JSONResponse(await run_in(threads.creates, service.create, await _body(request)))

    @app.post("/delete")
    async def delete(request: Request) -> Response:
        return PlainTextResponse(await run_in(threads.deletes, service.delete, await _body(request)) + "\n")

    # interLink's API server asks by GET with a body; its published description says POST.
    @app.api_route("/status", methods=["GET", "POST"])
    async def status(request: Request) -> Response:
        body = await _body(request)
        answer: Any = await run_in(threads.answers, service.status, body) if body else service.ping()
        return JSONResponse(answer)

    @app.api_route("/getLogs", methods=["GET", "POST"])
    async def logs(request: Request) -> Response:
        gone = threading.Event()
        chunks = await run_in(threads.answers, service.logs, await _body(request), gone.is_set)
        # Said at once: who waited for a thread would see an empty log.
        if threads.free_followers <= 0:
            raise NotReady("too many logs are being read; try again later")
        threads.free_followers -= 1
        return _LogResponse(chunks, gone, threads)

    @app.get("/system-info")
    async def system_info() -> Response:
        return JSONResponse(service.system_info())

    @app.get("/healthz")
    async def healthz() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def readyz() -> Response:
        why = service.ready()
        return PlainTextResponse(f"{why or 'ok'}\n", 503 if why else 200)

    return app


def status_code(error: AdapterError) -> int:
    """4xx where the pod is at fault and trying again is no use, 5xx where it may be."""
    match error:
        case RefusedIdentity():
            return 403
        case PodError():
            return 400
        case Rejected():
            return 422
        case _:
            return 503


def _allowed(request: Request, token: bytes) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token)


async def _body(request: Request) -> Any:
    """The JSON body whatever the content type says; an empty one is null, as a ping may have it."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_LIMIT:
            raise Invalid("body", f"is larger than {BODY_LIMIT >> 20} MiB")
    if not data.strip():
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Invalid("body", f"is no JSON: {error}") from error


class _LogResponse(StreamingResponse):
    """Sends what a thread reads; when the client leaves, the thread is told and ends."""

    def __init__(self, chunks: Iterator[bytes], gone: threading.Event, threads: Pools) -> None:
        super().__init__(self._pump(chunks), media_type="text/plain")
        self._gone = gone
        self._threads = threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._gone.set()
            self._threads.free_followers += 1

    async def _pump(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (chunk := await run_in(self._threads.logs, next, chunks, None)) is not None:
            yield chunk
