"""Configuration → the driver's surroundings."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from slurmrest_adapter.config import MapLine, Settings, load
from slurmrest_adapter.delivery.base import Delivery
from slurmrest_adapter.delivery.environment import EnvironmentDelivery
from slurmrest_adapter.delivery.shared import SharedDelivery
from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.identity.base import Owner
from slurmrest_adapter.identity.mapfile import Line, MapMapper
from slurmrest_adapter.runtimes.apptainer import ApptainerRuntime
from slurmrest_adapter.runtimes.base import Runtime
from slurmrest_adapter.slurm.build import TokenSettings, build_gateway
from slurmrest_adapter.slurm.gateway import Gateway
from slurmrest_adapter.store.events import SqliteEvents
from slurmrest_adapter.store.sqlite import SqliteStore
from slurmrest_adapter.tracking.driver.deps import Deps
from slurmrest_adapter.translate.site import Site

_KEY_BYTES = 32


def build(config: Path | None) -> Deps:
    """Read the configuration and put the rooms together; asks nothing of slurmrestd.

    Raises:
        ConfigError: a key, directory or file cannot be used; the text names it.
    """
    settings = load(config)
    if settings.shared_dir is None:
        raise ConfigError("shared_dir: is needed, a directory that this host and the nodes both see")
    state = _state_dir(settings.state_dir)
    runtime = ApptainerRuntime(
        insecure_registries=settings.images.insecure_registries,
        cache=settings.images.cache,
        mode=settings.podrunner.mode,
        python=settings.podrunner.python,
        runner=settings.podrunner.path,
    )
    return Deps(
        gateway=gateway_of(settings),
        store=SqliteStore(state / "pods.sqlite3"),
        events=SqliteEvents(state / "events.sqlite3") if settings.spank.enabled else None,
        delivery=_delivery(settings, settings.shared_dir),
        mapper=MapMapper([_line(line) for line in settings.identity.map], settings.identity.min_uid),
        site=_site(settings, runtime),
        script=runtime.job_script(),
        key=identity_key(state),
        shared_root=settings.shared_dir,
    )


def gateway_of(settings: Settings) -> Gateway:
    """The gateway that a configuration describes."""
    slurm = settings.slurm
    return build_gateway(
        slurm.endpoints,
        TokenSettings(
            source=slurm.token.source,
            key_file=str(slurm.token.key_file) if slurm.token.key_file else None,
            token_file=str(slurm.token.file) if slurm.token.file else None,
            value=slurm.token.token,
            lifetime_s=slurm.token.lifetime_s,
        ),
        api_version=slurm.api_version,
        service_user=slurm.service_user,
        connect_s=slurm.timeouts.connect_s,
        read_s=slurm.timeouts.read_s,
        pool=slurm.pool,
        min_uid=settings.identity.min_uid,
    )


def identity_key(state: Path) -> bytes:
    """The key that signs identities on jobs; made at the first start, 0600.

    Raises:
        ConfigError: it cannot be read or made, or is too short to be one.
    """
    path = state / "identity.key"
    try:
        building = path.with_suffix(f".{os.getpid()}")
        if not path.exists():
            descriptor = os.open(building, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
            # link, not rename: of two first starts the second must not replace the first's key.
            with contextlib.suppress(FileExistsError):
                os.link(building, path)
            building.unlink()
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"state_dir: {path} cannot be used: {error.strerror}") from error
    if len(key) < _KEY_BYTES:
        raise ConfigError(f"state_dir: {path} is shorter than {_KEY_BYTES} bytes, so it is no key")
    return key


def _state_dir(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"state_dir {path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"state_dir {path} cannot be written by uid {os.geteuid()}")
    return path


def _delivery(settings: Settings, shared: Path) -> Delivery:
    made = EnvironmentDelivery if settings.plan.delivery == "environment" else SharedDelivery
    return made(shared, settings.shared_dir_on_nodes)


def _line(line: MapLine) -> Line:
    owner = Owner(line.user, line.account, line.qos, line.partition, line.uid, line.gid)
    return Line(line.namespace, line.service_account, owner)


def _site(settings: Settings, runtime: Runtime) -> Site:
    return Site(
        cluster=settings.cluster,
        partition=settings.defaults.partition,
        cpus=settings.defaults.cpus,
        memory=settings.defaults.memory,
        time_limit_seconds=settings.defaults.time_limit,
        requeue=settings.defaults.requeue,
        gpu_resources=settings.gpu.resources,
        gpu_types=settings.gpu.types,
        run_as_user=settings.identity.run_as_user,
        image_map=settings.images.map,
        host_paths=settings.policy.host_paths,
        claims=settings.volumes.pvc,
        runtime=runtime.plan_section(),
        backoff_base_seconds=settings.podrunner.backoff_base_s,
        log_max_bytes=settings.podrunner.log_max_size,
        log_max_files=settings.podrunner.log_max_files,
        max_idle_seconds=settings.gpu.max_idle,
        spank=settings.spank.enabled,
    )
