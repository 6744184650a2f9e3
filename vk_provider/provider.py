"""Everything put together: one object that starts and ends all loops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from slurmrest_adapter.config import Settings
from slurmrest_adapter.domain.errors import AdapterError, ConfigError
from vk_provider.authz import Authorizer
from vk_provider.cache import PodCache
from vk_provider.certs import ServingCertificate
from vk_provider.events import EventRecorder
from vk_provider.health import PATIENCE_S, Health
from vk_provider.kube import KubeClient
from vk_provider.kubelet import KubeletServer
from vk_provider.node import NodeKeeper, NodeSpec
from vk_provider.pods import NodeFacts, PodController, rfc3339_now
from vk_provider.poller import Poller
from vk_provider.queue import WorkQueue
from vk_provider.sidecar import SidecarClient, address
from vk_provider.tracked import Book
from vk_provider.watch import PodWatch

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What is no matter of the site's file.

    Attributes:
        address: IP address of the kubelet API, and the node's InternalIP.
        cert_dir: where key and certificate of the kubelet API are kept.
        workers: pods worked on at the same time.
        poll_s, ping_s, lease_s: seconds between two polls, pings, renewals of the lease.
        patience_s: seconds of a silent sidecar before the node is NotReady.
        retry_s: first and longest back-off of a pod, seconds.
    """

    address: str = "127.0.0.1"
    cert_dir: Path | None = None
    workers: int = 8
    poll_s: float = 2.0
    ping_s: float = 10.0
    lease_s: float = 10.0
    patience_s: float = PATIENCE_S
    retry_s: tuple[float, float] = (1.0, 60.0)


class Provider:
    """The virtual kubelet.

    Args:
        settings: the site's file: `node` and `listen` are read.
        api_config: see `kube.configuration`.
        options: the rest.

    Raises:
        ConfigError: something in the file cannot be used.
    """

    def __init__(self, settings: Settings, api_config: Any, options: Options) -> None:
        self._options = options
        self.stopping = threading.Event()
        self._api = KubeClient(api_config)
        listen, node = settings.listen, settings.node
        if listen.auth == "token" and listen.token_file is None and not listen.plugin.startswith("unix:"):
            raise ConfigError(
                "listen.token_file: is needed to reach the sidecar over TCP (listen.auth: token)"
            )
        self._sidecar = SidecarClient(address(listen.plugin), listen.token_file)
        self._cache, self._book = PodCache(), Book()
        self._queue = WorkQueue(*options.retry_s)
        spec = NodeSpec(node.name, node.taint, options.address, node.kubelet_port)
        self._node = NodeKeeper(
            self._api,
            self._sidecar,
            spec,
            self.stopping,
            Health(options.patience_s),
            ping_s=options.ping_s,
            lease_s=options.lease_s,
        )
        self._watch = PodWatch(self._api, node.name, self._cache, self._queue.add, self.stopping)
        self._poller = Poller(
            self._sidecar, self._cache, self._book, self._queue.add, self.stopping, options.poll_s
        )
        self._pods = PodController(
            self._api,
            self._sidecar,
            self._cache,
            self._book,
            EventRecorder(self._api, node.name, rfc3339_now),
            NodeFacts(node.name, options.address, self._node.allocatable),
            self._poller.soon,
        )
        client_ca = self._api.ca_file
        if client_ca is None:
            raise ConfigError("node.kubeconfig: names no certificate authority, so no client can be verified")
        cert_dir = options.cert_dir or settings.state_dir / "vk-provider" / node.name
        try:
            self._certificate = ServingCertificate(cert_dir, node.name, options.address, client_ca)
        except OSError as error:
            raise ConfigError(f"{cert_dir} cannot keep the serving certificate: {error}") from error
        self._kubelet = KubeletServer(
            self._cache,
            self._sidecar,
            Authorizer(self._api, node.name),
            self._certificate.context,
            options.address,
            node.kubelet_port,
        )
        self._threads: list[threading.Thread] = []

    @property
    def kubelet_port(self) -> int:
        """The port of the kubelet API; the real one, once started, where 0 was asked for."""
        return self._kubelet.port

    def start(self) -> None:
        """Begin.

        Raises:
            ConfigError: the kubelet API's port cannot be had.
        """
        try:
            self._kubelet.start()
        except OSError as error:
            raise ConfigError(f"node.kubelet_port {self._kubelet.port}: {error}") from error
        self._spawn("lease", self._node.run_lease)
        self._spawn("node", self._node.run)
        self._spawn("watch", self._watch.run)
        self._spawn("poll", self._poller.run)
        self._spawn("certificate", lambda: self._certificate.run(self._api, self.stopping))
        for number in range(self._options.workers):
            self._spawn(f"pods-{number}", self._work)
        log.info("started", address=self._options.address, port=self._kubelet.port)

    def stop(self, wait_s: float = 5.0) -> None:
        """End every loop; pods and jobs stay as they are, and so does the node until its lease runs out."""
        self.stopping.set()
        self._poller.soon()
        self._queue.close()
        self._kubelet.stop()
        until = time.monotonic() + wait_s
        for thread in self._threads:
            if thread.name != "watch":  # it sleeps in its connection, and nothing is lost with it
                thread.join(max(0.0, until - time.monotonic()))
        self._sidecar.close()
        self._api.close()
        log.info("stopped")

    def _spawn(self, name: str, loop: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._guarded, args=(name, loop), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _guarded(self, name: str, loop: Callable[[], None]) -> None:
        """A loop that dies of a fault of ours is told about and begun again."""
        while not self.stopping.is_set():
            try:
                loop()
            except Exception as error:
                log.error("loop failed", loop=name, error=type(error).__name__, exc_info=True)
                self.stopping.wait(5)

    def _work(self) -> None:
        while (uid := self._queue.get()) is not None:
            try:
                again = self._pods.sync(uid)
            except AdapterError as error:
                seconds = self._queue.retry(uid)
                log.info("pod has to wait", uid=uid, why=str(error), again_in_s=round(seconds, 1))
            except Exception as error:
                seconds = self._queue.retry(uid)
                log.error("pod failed here", uid=uid, error=type(error).__name__, exc_info=True)
            else:
                self._queue.forget(uid)
                if again is not None:
                    self._queue.add_after(uid, again)
            finally:
                self._queue.done(uid)
