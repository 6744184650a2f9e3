"""Get a container's image onto this node: a file or directory as it is, or pulled once and kept.

The store is a directory of the user's own, on the node or where the site says, keyed by the
manifest's digest: Apptainer's own cache asks the registry every time and lets parallel pulls do
their work several times. A lock file for each digest makes one pull of many that come together.
"""

import contextlib
import fcntl
import hashlib
import os
import stat
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

from . import registry, sif
from .plan import ContainerPlan, Plan
from .volumes import LOCAL_BASE, VolumeError, own_directory


class ImageError(Exception):
    """The image cannot be had; `reason` is the kubelet's word for it."""

    def __init__(self, message: str, reason: str = "ErrImagePull") -> None:
        super().__init__(message)
        self.reason = reason


class Image(NamedTuple):
    """An image on this node: a SIF file or a directory, and its OCI configuration if it has one."""

    path: str
    image_id: Optional[str]
    squashfs_offset: Optional[int]
    config: Optional[Dict[str, Any]]


def locate(plan: Plan, container: ContainerPlan, pulling: Callable[[], None]) -> Image:
    """Find or pull the image of one container; raises ImageError.

    `pulling` is called when a registry has to be asked for the image's content.
    """
    if container.image.startswith("/"):
        return inspect(container.image, None)
    try:
        reference = registry.parse(container.image)
    except ValueError as error:
        raise ImageError("{}: {}".format(container.image, error), "InvalidImageName")
    store = Store(plan.cache)
    known = store.remembered(str(reference))
    if container.pull_policy != "Always" and known and os.path.exists(store.path(known)):
        return inspect(store.path(known), known)
    if container.pull_policy == "Never":
        raise ImageError(
            "{}: not on this node, and must not be pulled".format(reference), "ErrImageNeverPull"
        )
    try:
        digest = registry.digest_of(reference, plan.insecure_registries)
    except registry.RegistryError as error:
        raise ImageError(str(error))
    with store.locked(digest):
        if not os.path.exists(store.path(digest)):
            pulling()
            store.pull(reference, digest, reference.host in plan.insecure_registries)
    store.remember(str(reference), digest)
    return inspect(store.path(digest), digest)


def inspect(path: str, image_id: Optional[str]) -> Image:
    """Read what is at `path`; raises ImageError."""
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):
            return Image(path, image_id, None, None)
        content = sif.read(path)
    except OSError as error:
        raise ImageError("{}: {}".format(path, error.strerror))
    except sif.SifError as error:
        raise ImageError(
            "{}: {}".format(path, error), "InvalidImageName" if image_id is None else "ErrImagePull"
        )
    return Image(path, image_id, content.squashfs_offset, content.config)


class Store:
    """SIF files named by digest in a directory that only this user can write."""

    def __init__(self, base: Optional[str]) -> None:
        try:
            self.directory = own_directory(base or LOCAL_BASE)
        except VolumeError as error:
            raise ImageError(str(error))

    def path(self, digest: str) -> str:
        """Where the image of this digest is, or would be."""
        return os.path.join(self.directory, digest.replace(":", "-") + ".sif")

    def remembered(self, reference: str) -> Optional[str]:
        """The digest this reference had when it was pulled last; None if it never was."""
        try:
            with open(self._reference_path(reference)) as stream:
                return stream.read().strip() or None
        except OSError:
            return None

    def remember(self, reference: str, digest: str) -> None:
        """Note which digest a reference has."""
        temporary = "{}.{}".format(self._reference_path(reference), os.getpid())
        with open(temporary, "w") as stream:
            stream.write(digest)
        os.rename(temporary, self._reference_path(reference))

    def _reference_path(self, reference: str) -> str:
        name = hashlib.sha256(reference.encode("utf-8")).hexdigest()
        return os.path.join(self.directory, name + ".ref")

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock of one digest; it is let go when this process ends, however it does."""
        path = os.path.join(self.directory, name.replace(":", "-") + ".lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def pull(self, reference: registry.Reference, digest: str, insecure: bool) -> None:
        """Pull by digest and put the finished file in its place; raises ImageError."""
        with scratch(self.directory, digest) as directory:
            target = os.path.join(directory, "image.sif")
            argv = ["apptainer", "-q", "pull", "--disable-cache"]
            argv += ["--no-https"] if insecure else []
            run_apptainer([*argv, target, reference.pinned(digest)], directory)
            os.rename(target, self.path(digest))

    def unpacked(self, path: str, image_id: Optional[str]) -> str:
        """A directory with the root file system of the SIF at `path`, unpacked once and kept."""
        details = os.stat(path)
        key = image_id or "{}:{}:{}:{}".format(
            os.path.realpath(path), details.st_ino, details.st_size, details.st_mtime
        )
        name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
        target = os.path.join(self.directory, name + ".dir")
        with self.locked(name):
            if not os.path.isdir(target):
                with scratch(self.directory, name) as directory:
                    root = os.path.join(directory, "root")
                    run_apptainer(["apptainer", "-q", "build", "--sandbox", root, path], directory)
                    os.rename(root, target)
        return target


@contextlib.contextmanager
def scratch(parent: str, name: str) -> Iterator[str]:
    """A new directory in `parent`, removed at the end with whatever is left in it.

    The caller holds the lock of `name`: what is there already was left by a pull that was killed.
    """
    directory = os.path.join(parent, "tmp-" + name.replace(":", "-"))
    _remove(directory)
    os.mkdir(directory, 0o700)
    try:
        yield directory
    finally:
        _remove(directory)


def _remove(directory: str) -> None:
    # An unpacked layer may hold directories that even their owner cannot enter.
    for root, names, _ in os.walk(directory):
        for name in names:
            path = os.path.join(root, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    import shutil  # slow to import, and needed only after a pull

    shutil.rmtree(directory, ignore_errors=True)


def run_apptainer(argv: List[str], directory: str) -> None:
    """Run Apptainer with its temporary files in `directory`; raises ImageError with its words."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "USER", "LANG") if name in os.environ}
    env["APPTAINER_TMPDIR"] = directory
    import subprocess  # slow to import, and needed only for a pull

    env["APPTAINER_CACHEDIR"] = os.path.join(directory, "cache")
    try:
        result = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise ImageError("{}: {}".format(argv[0], error.strerror))
    if result.returncode != 0:
        words = result.stdout.decode("utf-8", "replace").strip().splitlines()
        fatal = [line for line in words if line.startswith("FATAL:")]
        raise ImageError("apptainer: " + "; ".join(fatal or words[-3:])[:2000])
