"""Where nodes post SPANK events: one path on a socket of its own, in a thread of its own.

h11 on asyncio rather than the plugin API's server: any process of any node may connect here, so each
connection has little time, little room and one request, and all together have a bounded share of
this process. Whoever connects too often waits in the kernel's queue, where waiting costs nothing,
and is turned away past it; the plugin then keeps its events in its spool.

An event is answered when it is kept, and a node waits for no more than some ten milliseconds. So all
of it happens in the one thread, without waiting for another to get its turn: what has come by then is
proved, read and written together. Only what may wait for the disk is done elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path

import h11
import structlog

from slurmrest_adapter.sources.spank import MOST_BYTES, SIGNATURE_HEADER
from slurmrest_adapter.tracking.driver.events import Intake, Outcome

log = structlog.get_logger(__name__)

# A whole request, from the connection to the answer; the plugin itself gives up far earlier.
REQUEST_SECONDS = 3.0
HEADER_BYTES = 8192
CONNECTIONS = 512
# One address must not take them all. In a lab all nodes have one, so it is no small number.
OF_AN_ADDRESS = 128
# Connections a second, after a burst of as many: more would be this process's time, not the node's.
RATE = 2000.0
TIDY_SECONDS = 10.0
_BATCH = 64
_CODES = {Outcome.FORGED: 403, Outcome.MALFORMED: 400}
_SIGNATURE = SIGNATURE_HEADER.lower().encode()


class EventListener:
    """Serves between `start` and `stop`.

    Args:
        listening: a bound socket, see `listen.bind`; closed by `stop`.
        path: the one path that is known.
        intake: takes what is posted, in this thread.
    """

    def __init__(self, listening: socket.socket, path: str, intake: Intake) -> None:
        self._listening = listening
        self._socket_file = listening.getsockname() if listening.family == socket.AF_UNIX else ""
        self._path = path.encode("ascii")
        self._intake = intake
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="spank-events", daemon=True)
        self._tidier = ThreadPoolExecutor(1, thread_name_prefix="spank-tidy")
        self._of_address: Counter[str] = Counter()
        self._waiting: list[tuple[bytes, str, asyncio.Future[int]]] = []
        self._stopped = asyncio.Event()
        self._posted = asyncio.Event()

    def start(self) -> None:
        """Listen."""
        self._listening.listen(1024)
        self._listening.setblocking(False)
        self._thread.start()

    def stop(self) -> None:
        """Close the socket and every connection; what is being written is waited for. Idempotent."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        self._tidier.shutdown(wait=True)
        self._listening.close()
        if self._socket_file:
            Path(self._socket_file).unlink(missing_ok=True)

    @property
    def alive(self) -> bool:
        """False when the thread has died, which should not happen and must be seen."""
        return self._thread.is_alive()

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        work = [asyncio.ensure_future(one) for one in (self._accept(), self._write(), self._tidy())]
        stopped = asyncio.ensure_future(self._stopped.wait())
        done, _ = await asyncio.wait([*work, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopped}:
            log.error("the listener for spank events has died", error=repr(task.exception()))
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self) -> None:
        room = asyncio.Semaphore(CONNECTIONS)
        tasks: set[asyncio.Task[None]] = set()
        allowed, last = RATE, self._loop.time()
        while True:
            await room.acquire()
            try:
                client, peer = await self._loop.sock_accept(self._listening)
            except OSError as error:  # of this process or of a client that has left already
                log.warning("a connection could not be accepted", error=str(error))
                room.release()
                await asyncio.sleep(0.1)
                continue
            address = str(peer[0]) if isinstance(peer, tuple) else ""
            if address and self._of_address[address] >= OF_AN_ADDRESS:
                client.close()
                room.release()
            else:
                self._of_address[address] += 1
                task = self._loop.create_task(self._connection(client, address, room))
                tasks.add(task)  # asyncio itself keeps only a weak reference
                task.add_done_callback(tasks.discard)
            now = self._loop.time()
            allowed, last = min(RATE, allowed + (now - last) * RATE) - 1, now
            if allowed < 0:
                await asyncio.sleep(-allowed / RATE)

    async def _connection(self, client: socket.socket, address: str, room: asyncio.Semaphore) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                reader, writer = await asyncio.open_connection(sock=client, limit=2 * HEADER_BYTES)
                code = await self._answer(reader)
                phrase = HTTPStatus(code).phrase
                length = "" if code == 204 else "Content-Length: 0\r\n"
                writer.write(f"HTTP/1.1 {code} {phrase}\r\n{length}Connection: close\r\n\r\n".encode())
                await writer.drain()
        except (OSError, TimeoutError):
            pass  # who posts so slowly, or leaves, keeps its event
        finally:
            if writer is None:
                client.close()
            else:
                writer.close()
            self._of_address[address] -= 1
            if self._of_address[address] <= 0:
                del self._of_address[address]
            room.release()

    async def _answer(self, reader: asyncio.StreamReader) -> int:
        """Read the one request; the status code of its answer."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)
        signature, body = "", b""
        try:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await reader.read(HEADER_BYTES))
                elif isinstance(event, h11.Request):
                    code = self._refused(event)
                    if code:
                        return code
                    signature = dict(event.headers).get(_SIGNATURE, b"").decode("ascii", "replace")
                elif isinstance(event, h11.Data):
                    body += event.data
                    if len(body) > MOST_BYTES:
                        return 413
                else:
                    break
        except h11.RemoteProtocolError as error:
            return error.error_status_hint
        if not isinstance(event, h11.EndOfMessage):  # the connection was closed before
            return 400
        return await self._take(body, signature)

    def _refused(self, request: h11.Request) -> int:
        """The code of an answer for which no body need be read, 0 for none."""
        if request.target != self._path:
            return 404
        if request.method != b"POST":
            return 405
        length = dict(request.headers).get(b"content-length", b"0")
        return 413 if int(length) > MOST_BYTES else 0

    async def _take(self, body: bytes, signature: str) -> int:
        code: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((body, signature, code))
        self._posted.set()
        return await code

    async def _write(self) -> None:
        """Hand what waits to the intake, again and again."""
        while True:
            await self._posted.wait()
            batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
            if not self._waiting:
                self._posted.clear()
            try:
                outcomes = self._intake.take([(body, signature) for body, signature, _ in batch])
                codes = [_CODES.get(outcome, 204) for outcome in outcomes]
            except Exception as error:
                # A full disk, for one: the nodes keep them.
                log.exception("spank events could not be kept", events=len(batch), error=str(error))
                codes = [503] * len(batch)
                await asyncio.sleep(0.1)
            for (_, _, future), code in zip(batch, codes, strict=True):
                if not future.done():  # its node has given up
                    future.set_result(code)
            await asyncio.sleep(0)  # the answers first

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            try:
                await self._loop.run_in_executor(self._tidier, self._intake.tidy)
            except Exception:
                log.exception("the store of spank events could not be tidied")
