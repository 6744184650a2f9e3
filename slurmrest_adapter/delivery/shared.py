"""Delivery by a file in the pod's directory, which the sidecar and the nodes both see: ``plan.json``."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping

from slurmrest_adapter.delivery.directory import CLAIM, PodDirectories, write
from slurmrest_adapter.domain.podplan import PodPlan

_PLAN, _NEW = "plan.json", ".plan.new"


class SharedDelivery(PodDirectories):
    """A `Delivery` below one directory."""

    name = "shared"

    def put(self, directory: str, plan: PodPlan, uid: int | None, gid: int | None) -> Mapping[str, str]:
        """See `Delivery.put`."""
        text = plan.to_json()
        self.make(directory, {_PLAN: text}, uid, gid, lambda inside: _renew(inside, text, uid, gid))
        return {}

    def discard(self, directory: str) -> None:
        """See `Delivery.discard`. Removes a name and follows none: the directory is its user's."""
        with contextlib.suppress(OSError), self.opened(directory) as inside:
            os.unlink(_PLAN, dir_fd=inside)


def _renew(inside: int, text: str, uid: int | None, gid: int | None) -> None:
    """Put another plan in the place of one that nobody has begun to run."""
    if _is_there(inside, CLAIM) or _read(inside, _PLAN) == text:
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_NEW, dir_fd=inside)
    write(inside, _NEW, text, uid, gid)
    os.rename(_NEW, _PLAN, src_dir_fd=inside, dst_dir_fd=inside)


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
