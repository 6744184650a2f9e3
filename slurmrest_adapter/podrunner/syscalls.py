"""The few system calls that Python 3.6 does not wrap, by ctypes on the C library."""

import ctypes
import os
import struct
from typing import Optional

# <sched.h>, <sys/mount.h>, <sys/prctl.h>, <linux/capability.h>, <sys/statvfs.h>
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 0x400, 0x800, 0x200000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
_MFD_CLOEXEC = 1
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, PR_CAP_AMBIENT_CLEAR_ALL = 47, 2, 4
_CAPABILITY_VERSION_3 = 0x20080522
CAP_SYS_ADMIN = 21
_CAPABILITIES = 64  # no kernel has more; it refuses the numbers it does not know
# What a mount of another user namespace has must stay when we mount it anew: statvfs flag → mount flag.
_KEPT = (
    (1, MS_RDONLY), (2, MS_NOSUID), (4, MS_NODEV), (8, MS_NOEXEC),
    (1024, MS_NOATIME), (2048, MS_NODIRATIME), (4096, MS_RELATIME),
)  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "{}: {}".format(what, os.strerror(number)))


def unshare(flags: int) -> None:
    """Leave namespaces; see unshare(2). Raises OSError."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def set_namespace(descriptor: int, kind: int) -> None:
    """Join a namespace; see setns(2). Raises OSError."""
    _checked(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), "setns")


def set_hostname(name: str) -> None:
    """Name this UTS namespace. Raises OSError."""
    text = name.encode("utf-8")
    _checked(_libc.sethostname(text, ctypes.c_size_t(len(text))), "sethostname")


def pivot_here() -> None:
    """Make the working directory, a mount point, the root, and let the old root go. Raises OSError.

    See pivot_root(2), "pivot_root(".", ".")": the old root lies on the new one until it is detached.
    """
    _checked(_libc.pivot_root(b".", b"."), "pivot_root")
    unmount(".")


def make_read_only(target: str) -> None:
    """Let nothing be written through the mount at `target`. Raises OSError."""
    has = os.statvfs(target).f_flag
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY
    for flag, kept in _KEPT:
        flags |= kept if has & flag else 0
    mount("none", target, None, flags)


def mount(source: str, target: str, kind: Optional[str], flags: int = 0, options: str = "") -> None:
    """See mount(2). Raises OSError that names the target."""
    _checked(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode("ascii") if kind else None,
            ctypes.c_ulong(flags),
            options.encode("utf-8", "surrogateescape") if options else None,
        ),
        "mount " + target,
    )


def overlay(area: str, lower: Optional[str] = None) -> None:
    """Mount a writable layer over the directory `lower` (None: over nothing) as "root" in `area`.

    By paths relative to `area`, because the options give a meaning to ':' and ','. Raises OSError.
    """
    before = os.open(".", os.O_RDONLY)
    os.chdir(area)
    try:
        for name in ("lower", "upper", "work", "root"):
            os.mkdir(name, 0o755)
        if lower is not None:
            os.chmod("upper", os.stat(lower).st_mode & 0o7777 | 0o700)
            mount(lower, "lower", None, MS_BIND | MS_REC)
        layers = "lowerdir=lower,upperdir=upper,workdir=work,userxattr"
        mount("overlay", "root", "overlay", MS_NODEV, layers)
    finally:
        os.fchdir(before)
        os.close(before)


def memory_file(name: str) -> int:
    """Open a new file on memory; see memfd_create(2). Raises OSError."""
    create = getattr(_libc, "memfd_create", None)  # the C library has it since 2.27
    descriptor = -1 if create is None else create(name.encode("ascii"), ctypes.c_uint(_MFD_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    return int(descriptor)


def unmount(target: str) -> None:
    """Detach what is mounted at `target`, even if it is busy. Raises OSError."""
    _checked(_libc.umount2(os.fsencode(target), ctypes.c_int(MNT_DETACH)), "umount " + target)


def prctl(option: int, *arguments: int) -> None:
    """See prctl(2). Raises OSError."""
    values = [ctypes.c_ulong(value) for value in [*arguments, 0, 0, 0, 0][:4]]
    _checked(_libc.prctl(ctypes.c_int(option), *values), "prctl")


def keep_capability_over_exec(capability: int) -> None:
    """Let this process pass one capability of its user namespace to the program it executes."""
    bit = 1 << capability
    header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0))
    data = ctypes.create_string_buffer(struct.pack("<6I", bit, bit, bit, 0, 0, 0))
    _checked(_libc.capset(header, data), "capset")
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def give_up_privileges() -> None:
    """Leave no capability to this process, and let no program it executes gain any. Raises OSError."""
    for capability in range(_CAPABILITIES):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0))
    _checked(_libc.capset(header, ctypes.create_string_buffer(24)), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1)
