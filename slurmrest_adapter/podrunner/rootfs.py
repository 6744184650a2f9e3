"""The worker that brings one container's root file system: find or pull the image, then mount it.

It is a process of its own, so that a slow registry never keeps the pod from hearing TERM. It tells
its parent, `roots`, what happens.
"""

import os
import signal
import time
from typing import Dict, Optional

from . import images, process, syscalls
from .plan import ContainerPlan, Plan
from .roots import tell

# Where packages of Apptainer keep the programs that are for it alone.
_ALSO = ("/usr/libexec/apptainer/bin", "/usr/local/libexec/apptainer/bin", "/usr/lib/apptainer/bin")
_MOUNT_SECONDS = 20
_MOUNT_STEP_SECONDS = 0.002


def work(
    plan: Plan, container: ContainerPlan, mount_at: Optional[str], mounted: Dict[str, str], pipe: int
) -> None:
    """Bring the root file system and tell.

    `mount_at` is None where nothing can be mounted; `mounted` says which images are already, and where.
    Events: "pulling", then "ready" with root, path (of the image), image_id, config; or "failed" with
    reason, message.
    """
    try:
        image = images.locate(plan, container, lambda: tell(pipe, event="pulling"))
        root = mounted.get(image.path) or root_of(plan, image, mount_at)
    except images.ImageError as error:
        tell(pipe, event="failed", root="", reason=error.reason, message=str(error))
    else:
        tell(pipe, event="ready", root=root, path=image.path, image_id=image.image_id, config=image.config)


def root_of(plan: Plan, image: images.Image, mount_at: Optional[str]) -> str:
    """The directory that is the image's root; raises ImageError."""
    if os.path.isdir(image.path):
        return image.path
    if mount_at is not None and image.squashfs_offset is not None:
        try:
            mount(image.path, image.squashfs_offset, mount_at)
            return mount_at
        except OSError as error:
            print("{} is unpacked, because it cannot be mounted: {}".format(image.path, error), flush=True)
    return images.Store(plan.cache).unpacked(image.path, image.image_id)


def mount(path: str, offset: int, target: str) -> None:
    """Mount the squashfs in a SIF by a FUSE server that does not hear TERM; raises OSError.

    Slurm's cancel sends TERM to every process of the job. Apptainer's own FUSE server ends then, and
    the container's root file system with it, before the container has done what it does on TERM.
    """
    program = process.find_program("squashfuse_ll", _ALSO)
    if program is None:
        raise OSError("squashfuse_ll is not installed")
    os.makedirs(target, 0o755, exist_ok=True)  # there already when this is a restart
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    # Files that root made belong to the user too: who owns them has no name in the pod's namespace.
    options = "ro,nodev,offset={},uid={},gid={}".format(offset, os.getuid(), os.getgid())
    argv = [program, "-f", "-o", options, path, target]
    pid = process.spawn(argv, env, 2, 2, _server)
    device = os.lstat(os.path.dirname(target)).st_dev
    until = time.monotonic() + _MOUNT_SECONDS
    while time.monotonic() < until:
        if os.lstat(target).st_dev != device:
            return
        if os.waitpid(pid, os.WNOHANG)[0]:
            raise OSError("squashfuse_ll ended")
        time.sleep(_MOUNT_STEP_SECONDS)
    process.kill(pid, signal.SIGKILL)
    raise OSError("squashfuse_ll did not mount in {} seconds".format(_MOUNT_SECONDS))


def _server() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    syscalls.keep_capability_over_exec(syscalls.CAP_SYS_ADMIN)
