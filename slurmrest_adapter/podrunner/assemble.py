"""Build a container's root in a mount namespace of its own, and move into it.

An overlay lies on the image: what the container writes, and the mount points that the image lacks, are
in the upper layer, on the node's disk or, for a root that is read-only, on memory. Mounts are made from
inside the new root, so that links of the image lead nowhere else; their sources are opened before.
"""

import os
import stat
from typing import List, NamedTuple, Optional, Tuple

from . import syscalls
from .container import START_FAILED, CannotRun
from .volumes import Bound

_HARDENED = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
_TREE = syscalls.MS_BIND | syscalls.MS_REC


class Place(NamedTuple):
    """What surrounds the container.

    Attributes:
        root: the image's root file system.
        area: a directory of the sandbox to work in, and `init` the path of a file in it.
        upper: a directory on the node's disk for what the container writes, None for memory.
        read_only: the container cannot write to its root.
        dev: the directory that is its /dev.
        hostname: its host name, "" for the node's.
        oci: the image has an OCI configuration, whose Env is in `Start.env` already.
        mounts: what else is mounted.
    """

    root: str
    area: str
    init: str
    upper: Optional[str]
    read_only: bool
    dev: str
    hostname: str
    oci: bool
    mounts: List[Bound]


def build(place: Place, cwd: str, home: str) -> None:
    """Leave the pod's mount namespace for an own one and its root for the container's.

    Must be called by the first process of a PID namespace. Raises CannotRun, OSError.
    """
    syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS)
    if place.hostname:
        syscalls.set_hostname(place.hostname)
    _overlay(place)
    outside, inside = os.open("/", os.O_PATH), os.open("root", os.O_PATH)
    mounts = [Bound("/sys", "/sys", True), Bound(place.dev, "/dev", False), *place.mounts]
    opened = [_opened(bound) for bound in sorted(mounts, key=lambda bound: bound.target.split("/"))]
    os.fchdir(inside)
    os.chroot(".")
    syscalls.mount("proc", _point("/proc", True), "proc", _HARDENED)
    for descriptor, directory, bound in opened:
        try:
            target = _point(bound.target, directory)
            syscalls.mount("/proc/self/fd/{}".format(descriptor), target, None, _TREE)
            if bound.read_only:
                syscalls.make_read_only(target)
        except OSError as error:
            raise CannotRun(START_FAILED, "mount at {!r}: {}".format(bound.target, error.strerror))
        os.close(descriptor)
    try:
        os.makedirs(cwd, 0o755, exist_ok=True)
    except OSError as error:
        raise CannotRun(START_FAILED, "working directory {!r}: {}".format(cwd, error.strerror))
    _name_user(home, [bound.target for bound in place.mounts])
    if place.read_only:
        syscalls.make_read_only("/")
    os.fchdir(outside)
    os.chroot(".")
    os.fchdir(inside)
    syscalls.pivot_here()
    os.chdir("/")
    os.close(outside)
    os.close(inside)


def _overlay(place: Place) -> None:
    """Mount the root as "root" in the working directory."""
    os.makedirs(place.area, 0o700, exist_ok=True)
    if place.upper is None:
        flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
        syscalls.mount("tmpfs", place.area, "tmpfs", flags, "mode=700,size=16m")
    else:
        os.mkdir(place.upper, 0o700)
        syscalls.mount(place.upper, place.area, None, syscalls.MS_BIND)
    syscalls.overlay(place.area, place.root)
    os.chdir(place.area)


def _opened(bound: Bound) -> Tuple[int, bool, Bound]:
    try:
        descriptor = os.open(bound.source, os.O_PATH)
    except OSError as error:
        raise CannotRun(START_FAILED, "mount at {!r}: {}".format(bound.target, error.strerror))
    return descriptor, stat.S_ISDIR(os.fstat(descriptor).st_mode), bound


def _point(path: str, directory: bool) -> str:
    """Where `path` really is, made if it is missing."""
    path = os.path.realpath(path)
    os.makedirs(path if directory else os.path.dirname(path), 0o755, exist_ok=True)
    if not directory and not os.path.lexists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    return path


def _name_user(home: str, mounted: List[str]) -> None:
    """Give the user and group that the job has a name in the image's own lists, if it has lists."""
    name = os.environ.get("USER") or "user"
    home = home if home.isprintable() and ":" not in home else "/"
    for path, number, line in (
        ("/etc/passwd", os.getuid(), "{0}:x:{1}:{2}::{3}:/bin/sh\n"),
        ("/etc/group", os.getgid(), "{0}:x:{2}:\n"),
    ):
        if any((path + "/").startswith(target + "/") for target in mounted):
            continue
        try:
            with open(path, "rb") as stream:
                text = stream.read()
            if any(row.split(b":")[2:3] == [str(number).encode()] for row in text.splitlines()):
                continue
            said = line.format(
                name, os.getuid(), os.getgid(), home if home.isprintable() and ":" not in home else "/"
            )
            with open(path, "ab") as stream:
                stream.write((b"" if text[-1:] in (b"", b"\n") else b"\n") + said.encode("utf-8", "replace"))
        except OSError:
            continue  # an image without a list, or with one that nobody may change
