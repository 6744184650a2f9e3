"""``slurmrest-adapter serve``."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path
from typing import NamedTuple

import click
import structlog

from slurmrest_adapter.cli.build import build
from slurmrest_adapter.cli.errors import guarded
from slurmrest_adapter.config import Settings, load
from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.server.health import HealthWatch
from slurmrest_adapter.sources.spank import read_key
from slurmrest_adapter.sources.spankpost import path_of
from slurmrest_adapter.tracking.driver.events import Intake
from slurmrest_adapter.tracking.driver.loop import Loop

log = structlog.get_logger(__name__)

SPANK_EVENTS = "spank.events"


@click.command()
@click.option("--log-json", is_flag=True, help="Logs as JSON lines [on unless standard error is a terminal].")
@click.pass_obj
def serve(config: Path | None, log_json: bool) -> None:
    """Serve interLink's plugin API: create, delete, status, getLogs; /healthz and /readyz.

    Listens where the configuration's `listen` says: a unix socket that admits the listed uids, or
    TCP with a bearer token. With `spank.enabled` it also takes the SPANK plugin's events, where
    `spank.events` says. SIGTERM ends it; jobs go on, and the next start follows them again.

    \b
    Example: slurmrest-adapter --config /etc/slurmrest-adapter/config.yaml serve
    """
    _logging(log_json or not sys.stderr.isatty())
    guarded("table", lambda: _serve(config))


def _serve(config: Path | None) -> None:
    # The web server is loaded when it is to serve, and not for the help.
    from slurmrest_adapter.server.app import create_app
    from slurmrest_adapter.server.events import EventListener
    from slurmrest_adapter.server.listen import bind, server, split, token_reader
    from slurmrest_adapter.server.pools import Pools
    from slurmrest_adapter.server.service import Service

    settings = load(config)
    unix = split(settings.listen.plugin).scheme == "unix"
    deps = build(config)
    token = None
    if not unix and settings.listen.auth == "token":
        if settings.listen.token_file is None:
            raise ConfigError("listen.token_file: is needed to listen on TCP (or say auth: none)")
        token = token_reader(settings.listen.token_file)
    elif not unix:
        log.warning("the plugin API asks nobody who they are", listen=settings.listen.plugin, auth="none")
    spank = _spank(settings)
    listening = bind(settings.listen.plugin, settings.listen.allowed_uids)
    asker = settings.slurm.service_user or next((line.user for line in settings.identity.map), None)
    health = HealthWatch(deps.gateway, _partitions(settings), settings.gpu.resources, deps.clock, asker)
    loop = Loop(deps, settings.slurm.poll_s, one_asker=settings.slurm.service_user is not None)
    intake, listener = None, None
    if spank is not None and deps.events is not None:
        intake = Intake(deps.events, deps.store, spank.key, settings.cluster, loop.hint, deps.clock)
        listener = EventListener(spank.listening, spank.path, intake)
    health.start()
    loop.start()
    pools = Pools()
    app = create_app(Service(deps, loop, health, intake), token, pools)
    if listener is not None:
        listener.start()
        log.info("taking spank events", listen=settings.spank.events)
    log.info("serving", listen=settings.listen.plugin, cluster=settings.cluster)
    try:
        server(app, settings.listen.allowed_uids).run([listening])
    finally:
        pools.close()
        if listener is not None:
            listener.stop()
        loop.stop()
        health.stop()
        log.info("stopped")


class _Spank(NamedTuple):
    key: bytes
    path: str
    listening: socket.socket


def _spank(settings: Settings) -> _Spank | None:
    """What events need, had before anything is started; None where they are not enabled."""
    from slurmrest_adapter.server.listen import bind

    given = settings.spank
    if not given.enabled:
        return None
    if given.events is None:
        raise ConfigError("spank.events: is needed with spank.enabled, the address that nodes post to")
    if given.key_file is None:
        raise ConfigError("spank.key_file: is needed with spank.enabled, the key that nodes sign with")
    key = read_key(given.key_file)
    # The plugin posts as root, who may use any socket; the key tells the plugin from others.
    return _Spank(key, path_of(given.events), bind(given.events, (), SPANK_EVENTS))


def _partitions(settings: Settings) -> set[str]:
    """Where pods can land: the default partition and those of the identity map; empty is anywhere."""
    named = {line.partition or settings.defaults.partition for line in settings.identity.map}
    return set() if None in named else {name for name in named if name}


def _logging(as_json: bool) -> None:
    """One line an event on standard error; the pod's UID and the job's id are keys of their own."""
    renderer = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
