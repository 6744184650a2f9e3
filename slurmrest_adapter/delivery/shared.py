"""Delivery by a directory that the sidecar and the nodes both see.

``<shared_dir>/<32 hex>/`` belongs to the job's user, mode 0700; inside is ``plan.json``, 0400.
Until everything in it is right the directory keeps another name, so neither a crash nor a fast
scheduler ever shows a runner half a plan.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from slurmrest_adapter.domain.errors import ConfigError
from slurmrest_adapter.domain.podplan import PodPlan


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
        if final.exists():
            return
        self._check_owner(uid, gid)
        building = self._root / f".new-{directory}"
        try:
            if not self._root.exists():
                self._root.mkdir(mode=0o711, parents=True, exist_ok=True)
                self._root.chmod(0o711)  # whatever the umask: the jobs' users must get through
            if building.exists():  # left by a crash in the middle of this
                shutil.rmtree(building)
            building.mkdir(mode=0o700)
            descriptor = os.open(building / "plan.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(plan.to_json())
                file.flush()
                os.fsync(descriptor)
            if os.geteuid() == 0 and uid is not None and gid is not None:
                os.chown(building / "plan.json", uid, gid)
                os.chown(building, uid, gid)
            building.rename(final)
        except OSError as error:
            raise ConfigError(
                f"shared_dir {self._root} cannot take a pod's plan: {error.strerror} ({error.filename})"
            ) from error

    def discard(self, directory: str) -> None:
        """See `Delivery.discard`. Removes a name and follows none: the directory is its user's."""
        try:
            inside = os.open(self.here(directory), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            with contextlib.suppress(OSError):
                os.unlink("plan.json", dir_fd=inside)
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
