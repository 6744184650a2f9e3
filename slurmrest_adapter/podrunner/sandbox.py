"""The pod's own namespaces: what runs in them ends with this program, however it ends.

Three processes: the batch process stays outside and relays TERM; a first child leaves the user,
mount, PID and IPC namespaces; its child is PID 1 of the new ones and runs the containers. Each dies
with its parent (PR_SET_PDEATHSIG), and with PID 1 the kernel kills all that is left. If anything of
this cannot be had on a node, the batch process is as clean as before and can go on without; if all
of it can, the first two have only to wait, and become programs that need no memory (`first`).
"""

import os
import signal
import sys
from typing import Any, Callable, List, Optional

from . import first, syscalls
from .light import suppress

# Below the sandbox directory, which is a small tmpfs that only the pod sees.
DEV = "dev"  # for containers without GPUs
_DEVS = "devs"  # for each one with GPUs
DEV_RUNNER = "dev-runner"  # for this program and Apptainer: also has what mounting needs
ROOTS = "roots"
EMPTY = "empty"
INIT = "init"  # the program that is PID 1 in containers
_SHM = "shm"
_PROBE = "probe"

SHM_SIZE = "64m"  # as container runtimes give; the containers of a pod share it
_PLAIN_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "fd/0"),
    ("stdout", "fd/1"),
    ("stderr", "fd/2"),
    ("ptmx", "pts/ptmx"),
)


class Unavailable(Exception):
    """No sandbox on this node; the text says why."""


def run(directory: str, devices: List[str], body: Callable[[], int], relay: Optional[int] = None) -> int:
    """Run `body` as PID 1 of new namespaces and answer its exit code (128+s after signal s).

    `directory` becomes the sandbox's tmpfs, `devices` are the GPU device files to show. With `relay`, a
    descriptor that is closed inside, this process becomes another program where it can: one that writes
    a T there for each TERM and INT, and ends with that exit code. Raises Unavailable before `body` has
    started.
    """
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError as error:
        raise Unavailable(str(error))
    ready, report = os.pipe()
    outside = os.getpid()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, first.RELAYED)
    try:
        pid = os.fork()
        if pid == 0:
            os.close(ready)
            if relay is not None:
                os.close(relay)
            _first_child(directory, devices, body, report, outside, before)
        os.close(report)
        with os.fdopen(ready, "rb") as stream:
            answer = stream.read().decode("utf-8", "replace")
        if answer == "ok" and relay is not None:
            first.become_relay(pid, relay)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    ended, status = os.waitpid(-1, 0)
    while ended != pid:  # some shells leave us the child that wrote their here-document
        ended, status = os.waitpid(-1, 0)
    if answer != "ok":
        raise Unavailable(answer or "the sandbox's first process ended with status {}".format(status))
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def leave(directory: str) -> None:
    """End every other process of the sandbox and unmount its tmpfs; for PID 1 at its end."""
    with suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    with suppress(OSError):
        syscalls.unmount(directory)


def _first_child(
    directory: str, devices: List[str], body: Callable[[], int], report: int, outside: int, mask: Any
) -> None:
    # Slurm's cancel sends TERM to every process: this one has nothing to do with it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    code = 1
    try:
        uid, gid = os.getuid(), os.getgid()
        syscalls.unshare(
            syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWIPC
        )
        # After unshare, because a change of credentials clears it.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != outside:
            os._exit(1)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", "{} {} 1".format(uid, uid))
        _write("/proc/self/gid_map", "{} {} 1".format(gid, gid))
        pid = os.fork()
        if pid == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            _pid_one(directory, devices, body, report)
        os.close(report)
        report = -1
        first.become_relay(pid, os.open(os.devnull, os.O_WRONLY))
        status = os.waitpid(pid, 0)[1]
        code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    except OSError as error:
        if report >= 0:
            os.write(report, str(error).encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _pid_one(directory: str, devices: List[str], body: Callable[[], int], report: int) -> None:
    code = 1
    try:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            _furnish(directory, devices)
        except OSError as error:
            os.write(report, str(error).encode("utf-8", "replace"))
            return
        os.write(report, b"ok")
        os.close(report)
        code = body()
    except BaseException:  # noqa: BLE001  its words must reach runner.log; nothing may return from here
        import traceback  # large, and seldom needed

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _furnish(directory: str, devices: List[str]) -> None:
    """Mount what the pod has of its own: /proc, three kinds of /dev, a shared /dev/shm."""
    syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    hardened = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", "/proc", "proc", hardened)
    syscalls.mount("tmpfs", directory, "tmpfs", syscalls.MS_NOSUID, "size=16m,mode=700")
    for name in (DEV, _DEVS, DEV_RUNNER, ROOTS, EMPTY, _SHM, _PROBE):
        os.mkdir(os.path.join(directory, name), 0o755)
    syscalls.overlay(os.path.join(directory, _PROBE))  # kernels before 5.11 refuse it to us
    syscalls.unmount(os.path.join(directory, _PROBE, "root"))
    shm = os.path.join(directory, _SHM)
    syscalls.mount(
        "tmpfs", shm, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=1777,size=" + SHM_SIZE
    )
    _make_dev(os.path.join(directory, DEV), shm, [])
    _make_dev(os.path.join(directory, DEV_RUNNER), shm, [*devices, "/dev/fuse"])
    syscalls.mount(os.path.join(directory, DEV_RUNNER), "/dev", None, syscalls.MS_BIND | syscalls.MS_REC)


def dev_of(directory: str, container: str, devices: List[str]) -> str:
    """The directory that is a container's /dev, with these GPU device files; made at its first start."""
    if not devices:
        return os.path.join(directory, DEV)
    path = os.path.join(directory, _DEVS, container)
    if not os.path.isdir(path):
        os.mkdir(path, 0o755)
        _make_dev(path, os.path.join(directory, _SHM), devices)
    return path


def _make_dev(target: str, shm: str, devices: List[str]) -> None:
    for device in ["/dev/" + name for name in _PLAIN_DEVICES] + devices:
        if not os.path.exists(device):
            continue
        place = os.path.join(target, os.path.relpath(device, "/dev"))
        if os.path.isdir(device):
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT, 0o600))
        syscalls.mount(device, place, None, syscalls.MS_BIND | syscalls.MS_REC)
    for name in ("shm", "pts"):
        os.mkdir(os.path.join(target, name), 0o755)
    syscalls.mount(shm, os.path.join(target, "shm"), None, syscalls.MS_BIND)
    syscalls.mount(
        "devpts", os.path.join(target, "pts"), "devpts", syscalls.MS_NOSUID | syscalls.MS_NOEXEC,
        "newinstance,ptmxmode=0666,mode=0620",
    )  # fmt: skip
    for name, source in _LINKS:
        os.symlink(source, os.path.join(target, name))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)
