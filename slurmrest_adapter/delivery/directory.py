"""The pods' directories: one for each, its user's alone, that the sidecar and the nodes both see.

``<shared_dir>/<32 hex>/`` belongs to the job's user, mode 0700. Until everything in it is right the
directory keeps another name, so neither a crash nor a fast scheduler ever shows a runner half of it.
``shared_dir`` itself is never made: where it is missing its file system is not mounted, and plans
would go, secrets and all, to a disk that no node sees.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from slurmrest_adapter.domain.errors import ConfigError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The runner's, made before it reads the plan: from then on the plan is what runs.
CLAIM = "claim"


class PodDirectories:
    """The part of a `Delivery` that makes pods' directories.

    Args:
        root: ``shared_dir``, as this host sees it.
        root_on_nodes: the same directory's path on the nodes; None when it is the same.

    Attributes:
        name: the delivery's, in ``plan.delivery``.
    """

    name = ""

    def __init__(self, root: Path, root_on_nodes: str | None) -> None:
        self._root = root
        self._on_nodes = root_on_nodes or str(root)

    def reserve(self) -> str:
        """See `Delivery.reserve`."""
        return secrets.token_hex(16)

    def on_nodes(self, directory: str) -> str:
        """See `Delivery.on_nodes`."""
        return f"{self._on_nodes}/{directory}"

    def make(
        self,
        directory: str,
        files: Mapping[str, str],
        uid: int | None,
        gid: int | None,
        renew: Callable[[int], None],
    ) -> None:
        """Make a directory with these files, 0400, all of it the user's own.

        Args:
            renew: called in its stead for a directory that is there, with a descriptor of it. It is
                its user's by then: no name in it may be followed.

        Raises:
            ConfigError: it cannot be made, or not be handed to the user; says why and what to change.
        """
        self._check_owner(uid, gid)
        if not self._root.is_dir():
            raise ConfigError(
                f"shared_dir {self._root} is no directory here: mount it, or create it on the shared "
                f"file system (install -d -m 0711 -o root {self._root})"
            )
        final, building = self._root / directory, self._root / f".new-{directory}"
        try:
            if final.exists():
                with self.opened(directory) as inside:
                    renew(inside)
                return
            if building.exists():  # left by a crash in the middle of this
                shutil.rmtree(building)
            building.mkdir(mode=0o700)
            with self.opened(building.name) as inside:
                for name, text in files.items():
                    write(inside, name, text, uid, gid)
            if os.geteuid() == 0 and uid is not None and gid is not None:
                os.chown(building, uid, gid)
            building.rename(final)
        except OSError as error:
            raise ConfigError(
                f"shared_dir {self._root} cannot take a pod's plan: {error.strerror} ({error.filename})"
            ) from error

    @contextmanager
    def opened(self, directory: str) -> Iterator[int]:
        """A descriptor of a pod's directory; raises OSError."""
        inside = os.open(self._root / directory, _DIRECTORY)
        try:
            yield inside
        finally:
            os.close(inside)

    def _check_owner(self, uid: int | None, gid: int | None) -> None:
        """The directory must end up as the job's user's own, or nobody could use it."""
        what = f"plan delivery {self.name!r}"
        if uid is None or gid is None:
            raise ConfigError(
                f"{what} needs the job's user's uid and gid: give them in identity.map, "
                "or make the user known to this host"
            )
        if os.geteuid() not in (0, uid):
            raise ConfigError(
                f"{what} must hand the pod's directory to uid {uid}, which only root can do; "
                f"this process runs as uid {os.geteuid()}: run it as root, or map all pods to that one user"
            )


def write(directory: int, name: str, text: str, uid: int | None, gid: int | None) -> None:
    """Write a new file, 0400 and the user's own; raises OSError, FileExistsError for any such name."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o400, dir_fd=directory)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
        if os.geteuid() == 0 and uid is not None and gid is not None:
            os.fchown(descriptor, uid, gid)
