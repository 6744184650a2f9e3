"""The pod's volumes on the node: files on memory, empty directories on disk or memory.

In a sandbox memory is a tmpfs of the pod's own mount namespace, which ends with its last process,
however that ends. What is on the node's disk, and in plain mode on /dev/shm, is removed at the end;
what a killed runner left there is removed by the same user's next one on the node.
"""

import fcntl
import os
import stat
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional

from . import process, syscalls
from .light import suppress
from .plan import ContainerPlan, Mount, Plan, Volume

LOCAL_BASE = "/var/tmp"
_PODS = "pods"
_SHARED_MEMORY = "/dev/shm"
_FILES, _MEMORY = "files", "memory"
_PAGE = 4096
_SPARE = 1024 * 1024  # for directories, and for mount points of volumes inside others
_OPEN = 0o777  # every container of the pod may write, whatever user it believes to be


_FITS = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}


class VolumeError(Exception):
    """A volume cannot be made or mounted; the text says which and why."""


class Bound(NamedTuple):
    """A file or directory of the node and where a container sees it."""

    source: str
    target: str
    read_only: bool


class Scratch:
    """A directory of the pod's own below `base`, closed to other users; raises VolumeError.

    A lock on it, which is let go when this process ends, tells it from one that was left behind.
    """

    def __init__(self, base: str) -> None:
        try:
            home = os.path.join(own_directory(base), _PODS)
            os.makedirs(home, mode=0o700, exist_ok=True)
            lock = _locked(home)  # nobody may look between our mkdir and our lock
            try:
                self.path = os.path.join(home, "{}-{}".format(_node(), os.urandom(8).hex()))
                os.mkdir(self.path, 0o700)
                self._lock = _locked(self.path)
            finally:
                os.close(lock)
        except OSError as error:
            raise VolumeError("{}: {}".format(base, error.strerror))

    def remove(self) -> None:
        """Remove it with all that is in it."""
        remove(self.path)
        os.close(self._lock)


class Local:
    """The pod's directories outside the sandbox's memory, each made when it is first needed."""

    def __init__(self, plan: Plan, environ: Mapping[str, str]) -> None:
        self.everywhere: List[Bound] = []  # what every container sees beside its own mounts
        self._on_disk = any(
            volume.files is None and volume.host_path is None and not volume.memory for volume in plan.volumes
        )
        if plan.mode != "plain":
            self._on_disk = self._on_disk or any(not each.read_only_root for each in plan.containers)
        self._base = disk_base(environ)
        self._disk: Optional[Scratch] = None
        self._memory: Optional[Scratch] = None

    def tidy(self) -> None:
        """Remove what the user's killed runners left on this node, on disk and memory."""
        for base in (self._base, _SHARED_MEMORY):
            if os.path.isdir(os.path.join(_own_path(base), _PODS)):
                with suppress(OSError, VolumeError):  # what is wrong there, who needs it will be told
                    _tidy(os.path.join(own_directory(base), _PODS))

    def disk(self) -> Optional[str]:
        """A directory on the node's disk, None if nothing needs one; raises VolumeError."""
        if self._on_disk and self._disk is None:
            self._disk = Scratch(self._base)
        return self._disk.path if self._disk is not None else None

    def upper(self, container: ContainerPlan) -> Optional[str]:
        """Where a container's root keeps what is written to it; None where it is read-only."""
        disk = None if container.read_only_root else self.disk()
        # No volume's name begins so.
        return None if disk is None else os.path.join(disk, ".root-" + container.name)

    def memory(self) -> str:
        """A directory on memory that the node shares; raises VolumeError."""
        if self._memory is None:
            self._memory = Scratch(_SHARED_MEMORY)
        return self._memory.path

    def remove(self) -> None:
        """Remove what was made."""
        for scratch in (self._disk, self._memory):
            if scratch is not None:
                scratch.remove()
        self._disk = self._memory = None


def disk_base(environ: Mapping[str, str]) -> str:
    """Where the node has room on disk: what the site set for the job, but /tmp, which may be memory."""
    given = [environ.get(name, "") for name in ("SLURM_TMPDIR", "TMPDIR")]
    chosen = [path for path in given if path.startswith("/") and os.path.normpath(path) != "/tmp"]
    return next((path for path in chosen if os.path.isdir(path)), LOCAL_BASE)


def make(plan: Plan, sandbox: Optional[str], local: Local) -> Dict[str, str]:
    """Make the pod's volumes and answer their paths by name, without links; raises OSError, VolumeError.

    `sandbox` is the directory of the pod's namespaces, None without them.
    """
    made: Dict[str, str] = {}
    files = _home(plan, sandbox, local) if any(volume.files is not None for volume in plan.volumes) else ""
    for volume in plan.volumes:
        if volume.files is not None:
            made[volume.name] = _fill(os.path.join(files, volume.name), volume)
            continue
        if volume.host_path is not None:
            made[volume.name] = _of_node(volume, volume.host_path, sandbox is None)
            continue
        if not volume.memory:
            base = local.disk() or ""
        elif sandbox is None:
            base = local.memory()
        else:
            base = os.path.join(sandbox, _MEMORY)
            os.makedirs(base, mode=0o700, exist_ok=True)
        path = os.path.join(base, volume.name)
        os.mkdir(path, 0o700)
        if volume.memory and sandbox is not None:
            size = ",size={}".format(volume.size) if volume.size else ""
            syscalls.mount("tmpfs", path, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=777" + size)
        os.chmod(path, _OPEN)
        made[volume.name] = path
    return {name: os.path.realpath(path) for name, path in made.items()}


def _home(plan: Plan, sandbox: Optional[str], local: Local) -> str:
    """The directory, 0700 and on memory, for the volumes of files."""
    if sandbox is None:
        path = os.path.join(local.memory(), _FILES)
        os.mkdir(path, 0o700)
        return path
    path = os.path.join(sandbox, _FILES)
    os.mkdir(path, 0o700)
    size = _SPARE
    for volume in plan.volumes:
        for file in volume.files or []:
            size += len(file.data) + _PAGE * (2 + file.path.count("/"))
    options = "mode=700,size={}".format(size)
    syscalls.mount("tmpfs", path, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    return path


def _fill(directory: str, volume: Volume) -> str:
    os.mkdir(directory, 0o700)
    for file in volume.files or []:
        path = os.path.join(directory, file.path)
        _directories(directory, os.path.dirname(file.path), 0o755)
        with open(path, "xb") as stream:
            stream.write(file.data)
        os.chmod(path, file.mode)
    os.chmod(directory, _OPEN)
    return directory


def _of_node(volume: Volume, given: str, plain: bool) -> str:
    """A file or directory of the node, made where its type says so; "" makes a directory, as containerd."""
    name, kind, path = volume.name, volume.host_type, os.path.realpath(given)
    if volume.host_within is not None:
        allowed = [os.path.join(os.path.realpath(each), "") for each in volume.host_within]
        if not os.path.join(path, "").startswith(tuple(allowed)):
            words = "volume {!r}: {!r} leads to {!r}, which the site does not allow (policy.host_paths)"
            raise VolumeError(words.format(name, given, path))
    try:
        if not os.path.lexists(path):
            if kind in ("", "DirectoryOrCreate"):
                os.makedirs(path)
                os.chmod(path, 0o755)
            elif kind == "FileOrCreate":
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
                os.chmod(path, 0o644)
        mode = os.stat(path).st_mode
    except OSError as error:
        raise VolumeError("volume {!r}: {!r}: {}".format(name, given, error.strerror))
    fits = _FITS.get(kind[: -len("OrCreate")] if kind.endswith("OrCreate") else kind)
    if fits is not None and not fits(mode):
        raise VolumeError("volume {!r}: {!r} is no {}".format(name, given, kind))
    if plain and (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
        words = "volume {!r}: {!r} is a device, which podrunner mode plain (Apptainer) does not let be opened"
        raise VolumeError(words.format(name, given))
    return path


def bind(
    mounts: List[Mount], directories: Mapping[str, str], everywhere: Iterable[Bound] = ()
) -> List[Bound]:
    """What one container's mounts are on the node, in their order; raises OSError, VolumeError.

    Of what is `everywhere`, that is left out which the container mounts itself.

    A part of a volume that does not exist becomes a directory, as with the kubelet. So do the mount
    points of volumes inside others: the runtime could not make them where a volume is read-only.
    """
    bound: List[Bound] = []
    for mount in sorted(mounts, key=lambda mount: mount.path.split("/")):
        source = directories[mount.volume]
        if os.path.realpath(source) != source:
            raise VolumeError("volume {!r}: a link has come into its path".format(mount.volume))
        if mount.sub_path:
            source = _part(source, mount)
        place(bound, Bound(source, mount.path, mount.read_only))
    own = {each.target for each in bound}
    return bound + [each for each in everywhere if each.target not in own]


def place(bound: List[Bound], mount: Bound) -> None:
    """Add a mount to those it may lie inside of; raises OSError."""
    around = [other for other in bound if mount.target.startswith(other.target + "/")]
    if around:
        outer = max(around, key=lambda other: len(other.target))
        mount_point(outer.source, mount.target[len(outer.target) + 1 :], os.path.isdir(mount.source))
    bound.append(mount)


def _part(volume: str, mount: Mount) -> str:
    """The path of a part of a volume; a link in it, which containers can make, must not lead out."""
    path = os.path.realpath(os.path.join(volume, mount.sub_path))
    if path != volume and not path.startswith(volume + "/"):
        raise VolumeError("subPath {!r} leads out of volume {!r}".format(mount.sub_path, mount.volume))
    if not os.path.lexists(path):
        _directories(volume, os.path.relpath(path, volume), _OPEN)
    return path


def mount_point(volume: str, path: str, directory: bool) -> None:
    """Make what a mount at `path` in a directory needs, if it is not there; raises OSError."""
    place = os.path.realpath(os.path.join(volume, path))
    if not place.startswith(volume + "/") or os.path.lexists(place) or not os.path.isdir(volume):
        return  # there is one, or the runtime will say what is wrong
    relative = os.path.relpath(place, volume)
    _directories(volume, relative if directory else os.path.dirname(relative), 0o755)
    if not directory:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def _directories(base: str, path: str, mode: int) -> None:
    """Make the directories of a relative path that are missing, with this mode whatever the umask."""
    here = base
    for part in path.split("/"):
        here = os.path.join(here, part)
        if part and not os.path.isdir(here):
            os.mkdir(here, 0o700)
            os.chmod(here, mode)


def _node() -> str:
    """A base that several nodes see has their directories too, and their locks may not reach here."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _locked(path: str, wait: bool = True) -> int:
    """A directory, open and with a lock on it; raises OSError, if there shall be no wait for it too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _tidy(home: str) -> None:
    """Remove the directories of this node in which no runner lives; raises OSError."""
    lock = _locked(home)
    left = []
    try:
        for path in [os.path.join(home, name) for name in os.listdir(home)]:
            if os.path.basename(path).rpartition("-")[0] == _node():
                with suppress(OSError):
                    left.append((path, _locked(path, wait=False)))
    finally:
        os.close(lock)
    for path, descriptor in left:
        remove(path)
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a directory, whatever a container made of it: closed to its owner, or very deep."""
    for argv in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if os.path.lexists(path):
            process.call(*argv, "--", path)
    if os.path.lexists(path):
        print("{} could not be removed".format(path), flush=True)


def own_directory(base: str) -> str:
    """The directory ``slurmrest-adapter-<uid>`` below `base`, made if need be; raises VolumeError.

    Below a directory that everybody can write, another user may have put something of this name: it
    must be a directory, no link, ours, and closed to all others.
    """
    path = _own_path(base)
    try:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        details = os.lstat(path)
    except OSError as error:
        raise VolumeError("{}: {}".format(path, error.strerror))
    if not stat.S_ISDIR(details.st_mode):
        raise VolumeError("{}: is not a directory".format(path))
    if details.st_uid != os.getuid():
        raise VolumeError("{}: belongs to another user".format(path))
    if stat.S_IMODE(details.st_mode) & 0o077:
        raise VolumeError("{}: is open to other users".format(path))
    return path


def _own_path(base: str) -> str:
    return os.path.join(base, "slurmrest-adapter-{}".format(os.getuid()))
