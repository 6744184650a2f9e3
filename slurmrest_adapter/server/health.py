"""Asking Slurm how it is, beside the driver loop: capacity for the ping, health for probes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import structlog

from slurmrest_adapter.domain.errors import SlurmError
from slurmrest_adapter.server.capacity import Capacity, total
from slurmrest_adapter.slurm.base import SlurmGateway

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Health:
    """The last answer and how old it is.

    Attributes:
        capacity: the last known; None when Slurm has never answered.
        connected: the last question was answered.
        since: POSIX seconds of the last answer, 0 when there was none.
        error: why there was no answer, "" when there was one.
    """

    capacity: Capacity | None = None
    connected: bool = False
    since: float = 0.0
    error: str = ""


class HealthWatch:
    """Asks for nodes every few seconds, so that a ping is answered from memory.

    Args:
        partitions, gpu_resources: see `capacity.total`.
        interval: seconds between two questions.
        user: who asks where there is no service user.
    """

    def __init__(
        self,
        gateway: SlurmGateway,
        partitions: Collection[str],
        gpu_resources: Mapping[str, str],
        clock: Callable[[], float],
        user: str | None = None,
        interval: float = 5.0,
    ) -> None:
        self._gateway = gateway
        self._partitions = tuple(partitions)
        self._gpu_resources = gpu_resources
        self._clock = clock
        self._user = user
        self._interval = interval
        self._health = Health()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        """Ask once, so that the first ping has an answer, then go on in a thread."""
        self.ask()
        self._thread.start()

    def stop(self) -> None:
        """End; a question on its way is waited for."""
        self._stop.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """False when the thread has died, which should not happen and must be seen."""
        return self._thread.is_alive()

    @property
    def now(self) -> Health:
        """The last answer."""
        return self._health

    def ask(self) -> None:
        """Ask once and keep the answer; a failure keeps the last capacity."""
        last = self._health
        try:
            capacity = total(self._gateway.nodes(self._user), self._partitions, self._gpu_resources)
        except SlurmError as error:
            if last.connected or not last.error:
                log.warning("slurm could not be asked for its nodes", error=str(error))
            self._health = Health(last.capacity, False, last.since, str(error))
            return
        except Exception as error:  # an answer that nobody thought of must not end the asking
            text = f"{type(error).__name__}: {error}"
            if text != last.error:
                log.exception("the answer about nodes could not be understood")
            self._health = Health(last.capacity, False, last.since, text)
            return
        if last.error:
            log.info("slurm answers again")
        self._health = Health(capacity, True, self._clock(), "")

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self.ask()
