"""Where nodes post SPANK events: one path on a socket of its own, in a thread of its own.

Not the plugin API's server: any process of any node may connect here, so each connection has little
time and little room, and all together have a bounded share of this process. Whoever comes too often
waits in the kernel's queue, where waiting costs nothing, and is turned away past it; the plugin then
keeps its events in its spool.

An event is answered when it is kept, and a node waits for no more than some ten milliseconds. So all
of it happens in the one thread, without waiting for another to get its turn and without an event
loop's ceremony: what has come by then is proved, read and written together. Only what may wait for
the disk is done elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections import Counter, OrderedDict
from pathlib import Path

import structlog

from slurmrest_adapter.server.eventwire import EventWire, Posted, answer
from slurmrest_adapter.tracking.driver.events import Intake, Outcome

log = structlog.get_logger(__name__)

# A whole request, and the wait for the next one; the plugin itself gives up far earlier.
REQUEST_SECONDS = 3.0
CONNECTIONS = 512
# One address must not take them all. In a lab all nodes have one, so it is no small number.
OF_AN_ADDRESS = 128
# Connections and requests a second, after a burst of as many: more would be this process's time.
RATE = 2000.0
TIDY_SECONDS = 10.0
_RECEIVE_BYTES = 8192
# What a client sends on after a refusal is read and dropped, so that it sees the answer, up to here.
_LINGER_BYTES = 65536
_QUEUE = 1024
_CODES = {Outcome.FORGED: 403, Outcome.MALFORMED: 400}
# Only who brings our cluster's events may keep a connection for the next.
_WELCOME = frozenset({Outcome.TAKEN, Outcome.DUPLICATE, Outcome.UNKNOWN_JOB})


class _Connection:
    """One client's.

    Attributes:
        left: bytes that may still be dropped after the last answer; None before that.
        watched: is its descriptor among those that the thread waits for?
    """

    __slots__ = ("address", "deadline", "left", "socket", "watched", "wire")

    def __init__(self, client: socket.socket, address: str, wire: EventWire, deadline: float) -> None:
        self.socket = client
        self.address = address
        self.wire = wire
        self.deadline = deadline
        self.left: int | None = None
        self.watched = False


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
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = threading.Event()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="spank-events", daemon=True)
        self._tidier = threading.Thread(target=self._tidy, name="spank-tidy", daemon=True)
        self._connections: OrderedDict[int, _Connection] = OrderedDict()  # by descriptor, next deadline first
        self._of_address: Counter[str] = Counter()
        self._allowed, self._counted = RATE, time.monotonic()
        self._accepting = True

    def start(self) -> None:
        """Listen."""
        self._listening.setblocking(False)
        if not self._socket_file:
            # Accepted connections inherit it.
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Awake when there is something to read, not twice.
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
        self._listening.listen(_QUEUE)
        self._epoll.register(self._listening, select.EPOLLIN)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._thread.start()
        self._tidier.start()

    def stop(self) -> None:
        """Close the socket and every connection; what is being written is waited for. Idempotent."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._stopping.set()
        os.eventfd_write(self._wake, 1)
        for thread in (self._thread, self._tidier):
            if thread.ident is not None:
                thread.join(10)
        self._listening.close()
        self._epoll.close()
        os.close(self._wake)
        if self._socket_file:
            Path(self._socket_file).unlink(missing_ok=True)

    @property
    def alive(self) -> bool:
        """False when the thread has died, which should not happen and must be seen."""
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except Exception as error:
            log.exception("the listener for spank events has died", error=str(error))
        finally:
            self._listening.close()  # nobody is to wait for an answer that cannot come
            for connection in list(self._connections.values()):
                self._close(connection)

    def _turn(self) -> None:
        """Wait until something has come, and answer it."""
        ready = []
        for descriptor, _ in self._epoll.poll(self._patience()):
            if descriptor == self._listening.fileno():
                # One for each turn: who is connected already comes first.
                connection = self._accept()
            else:
                connection = self._connections.get(descriptor)
            if connection is not None and self._receive(connection):
                ready.append(connection)
        if ready:
            self._answer(ready)
        self._leave_the_slow()
        self._accept_again()
        if self._allowed < 0:
            time.sleep(-self._allowed / RATE)

    def _patience(self) -> float:
        """Seconds until the next deadline; -1 without one."""
        for connection in self._connections.values():
            return max(0.0, connection.deadline - time.monotonic()) + 0.001
        return -1.0

    def _count(self) -> None:
        """One more connection or request."""
        now = time.monotonic()
        self._allowed = min(RATE, self._allowed + (now - self._counted) * RATE) - 1
        self._counted = now

    def _accept(self) -> _Connection | None:
        try:
            client, peer = self._listening.accept()
        except BlockingIOError:
            return None
        except OSError as error:  # of this process or of a client that has left already
            log.warning("a connection could not be accepted", error=str(error))
            time.sleep(0.1)
            return None
        self._count()
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        if address and self._of_address[address] >= OF_AN_ADDRESS:
            client.close()
            return None
        self._of_address[address] += 1
        made = _Connection(client, address, EventWire(self._path), time.monotonic() + REQUEST_SECONDS)
        self._connections[client.fileno()] = made
        if len(self._connections) >= CONNECTIONS:
            self._accepting = False
            self._epoll.unregister(self._listening)
        return made

    def _accept_again(self) -> None:
        if not self._accepting and len(self._connections) < CONNECTIONS:
            self._accepting = True
            self._epoll.register(self._listening, select.EPOLLIN)

    def _receive(self, connection: _Connection) -> bool:
        """Read what is there; True when something can be answered."""
        try:
            data = connection.socket.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._watch(connection)
            return False
        except OSError:
            self._close(connection)
            return False
        if connection.left is not None:
            connection.left -= len(data)
            if not data or connection.left < 0:
                self._close(connection)
            return False
        connection.wire.receive(data)
        if connection.wire.ready:
            return True
        if data:
            self._watch(connection)
        else:
            self._close(connection)
        return False

    def _watch(self, connection: _Connection) -> None:
        """Wait for more. Most connections bring all with the first packet and never come here."""
        if not connection.watched:
            connection.watched = True
            self._epoll.register(connection.socket, select.EPOLLIN)

    def _answer(self, ready: list[_Connection]) -> None:
        """Take all that these connections have posted, together, and answer it."""
        requests = [(connection, request) for connection in ready for request in connection.wire.taken()]
        posted = [request for _, request in requests if isinstance(request, Posted)]
        outcomes = iter(self._take(posted))
        answers: dict[_Connection, bytearray] = {}
        stays: dict[_Connection, bool] = {}
        for connection, request in requests:
            self._count()
            if isinstance(request, Posted):
                outcome = next(outcomes)
                code = 503 if outcome is None else _CODES.get(outcome, 204)
                stay = request.stays and outcome in _WELCOME
            else:
                code, stay = request.code, False
            if stays.get(connection, True):  # there is nothing to say after a "close"
                answers.setdefault(connection, bytearray()).extend(answer(code, stay))
                stays[connection] = stay
        for connection, text in answers.items():
            self._send(connection, bytes(text), stays[connection])

    def _take(self, posted: list[Posted]) -> list[Outcome] | list[None]:
        try:
            return self._intake.take([(one.body, one.signature) for one in posted])
        except Exception as error:
            # A full disk, for one: the nodes keep them.
            log.exception("spank events could not be kept", events=len(posted), error=str(error))
            return [None] * len(posted)

    def _send(self, connection: _Connection, text: bytes, stays: bool) -> None:
        try:
            sent = connection.socket.send(text, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            sent = -1
        if sent != len(text):  # it has left, or does not read
            self._close(connection)
        elif stays:
            connection.deadline = time.monotonic() + REQUEST_SECONDS
            self._connections.move_to_end(connection.socket.fileno())
            self._watch(connection)
        elif connection.wire.unread:
            # A close with something unread would take the answer away again (RFC 9112, 9.6).
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
            connection.left = _LINGER_BYTES
            self._watch(connection)
        else:
            self._close(connection)

    def _leave_the_slow(self) -> None:
        """Who posts so slowly keeps its event."""
        now = time.monotonic()
        while self._connections:
            oldest = next(iter(self._connections.values()))
            if oldest.deadline > now:
                return
            self._close(oldest)

    def _close(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()  # epoll lets go of it by itself
        self._of_address[connection.address] -= 1
        if self._of_address[connection.address] <= 0:
            del self._of_address[connection.address]

    def _tidy(self) -> None:
        while not self._stopping.wait(TIDY_SECONDS):
            try:
                self._intake.tidy()
            except Exception:
                log.exception("the store of spank events could not be tidied")
