"""Delivery by a directory that the sidecar and the nodes both see.

``<shared_dir>/<32 hex>/`` belongs to the job's user, mode 0700; inside is ``plan.json``, 0400.
Until everything in it is right the directory keeps another name, so neither a crash nor a fast
scheduler ever shows a runner half a plan. ``shared_dir`` itself is never made: where it is missing
its file system is not mounted, and plans would go, secrets and all, to a disk that no node sees.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from pathlib import Path

from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.domain.podplan import PodPlan

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAN, _NEW = "plan.json", ".plan.new"
# The runner's, made before it reads the plan: from then on the plan is what runs.
_CLAIM = "claim"


class SharedDelivery:
    """A `Delivery` below one directory.

    Args:
        root: ``shared_dir``, as this host sees it.
        root_on_nodes: the same directory's path on the nodes; None when it is the same.
    """

    def __init__(self, root: Path, root_on_nodes: str | None) -> None:
        self._root = root
        self._on_nodes = root_on_nodes or str(root)

    def reserve(self) -> str:
        """See `Delivery.reserve`."""
        return secrets.token_hex(16)

    def on_nodes(self, directory: str) -> str:
        """See `Delivery.on_nodes`."""
        return f"{self._on_nodes}/{directory}"

    def here(self, directory: str) -> Path:
        """That directory's path on this host."""
        return self._root / directory

    def put(self, directory: str, plan: PodPlan, uid: int | None, gid: int | None) -> None:
        """See `Delivery.put`."""
        final = self.here(directory)
        self._check_owner(uid, gid)
        if not self._root.is_dir():
            raise ConfigError(
                f"shared_dir {self._root} is no directory here: mount it, or create it on the shared "
                f"file system (install -d -m 0711 -o root {self._root})"
            )
        building = self._root / f".new-{directory}"
        try:
            if final.exists():
                self._renew(final, plan.to_json(), uid, gid)
                return
            if building.exists():  # left by a crash in the middle of this
                shutil.rmtree(building)
            building.mkdir(mode=0o700)
            inside = os.open(building, _DIRECTORY)
            try:
                _write(inside, _PLAN, plan.to_json(), uid, gid)
            finally:
                os.close(inside)
            if os.geteuid() == 0 and uid is not None and gid is not None:
                os.chown(building, uid, gid)
            building.rename(final)
        except OSError as error:
            raise ConfigError(
                f"shared_dir {self._root} cannot take a pod's plan: {error.strerror} ({error.filename})"
            ) from error

    def _renew(self, final: Path, text: str, uid: int | None, gid: int | None) -> None:
        """Put another plan in the place of one that nobody has begun to run.

        The directory is its user's by now: no name in it is followed.
        """
        inside = os.open(final, _DIRECTORY)
        try:
            if _is_there(inside, _CLAIM) or _read(inside, _PLAN) == text:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_NEW, dir_fd=inside)
            _write(inside, _NEW, text, uid, gid)
            os.rename(_NEW, _PLAN, src_dir_fd=inside, dst_dir_fd=inside)
        finally:
            os.close(inside)

    def discard(self, directory: str) -> None:
        """See `Delivery.discard`. Removes a name and follows none: the directory is its user's."""
        try:
            inside = os.open(self.here(directory), _DIRECTORY)
        except OSError:
            return
        try:
            with contextlib.suppress(OSError):
                os.unlink(_PLAN, dir_fd=inside)
        finally:
            os.close(inside)

    def _check_owner(self, uid: int | None, gid: int | None) -> None:
        """The directory must end up as the job's user's own, or nobody could read the plan."""
        if uid is None or gid is None:
            raise ConfigError(
                "plan delivery 'shared' needs the job's user's uid and gid: give them in identity.map, "
                "or make the user known to this host"
            )
        if os.geteuid() not in (0, uid):
            raise ConfigError(
                f"plan delivery 'shared' must hand the plan to uid {uid}, which only root can do; "
                f"this process runs as uid {os.geteuid()}: run it as root, or map all pods to that one user"
            )


def _write(directory: int, name: str, text: str, uid: int | None, gid: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o400, dir_fd=directory)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
        if os.geteuid() == 0 and uid is not None and gid is not None:
            os.fchown(descriptor, uid, gid)


def _is_there(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read(directory: int, name: str) -> str | None:
    """A file's text; None where it is no file that was put there."""
    try:
        descriptor = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory
        )
    except OSError:
        return None
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        return file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
