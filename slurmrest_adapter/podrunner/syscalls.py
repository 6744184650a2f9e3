"""The few system calls that Python 3.6 does not wrap, by ctypes on the C library."""

import ctypes
import os
import struct
from typing import Optional

# <sched.h>, <sys/mount.h>, <sys/prctl.h>, <linux/capability.h>
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 36, 47, 2
_CAPABILITY_VERSION_3 = 0x20080522
CAP_SYS_ADMIN = 21

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "{}: {}".format(what, os.strerror(number)))


def unshare(flags: int) -> None:
    """Leave namespaces; see unshare(2). Raises OSError."""
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: Optional[str], flags: int = 0, options: str = "") -> None:
    """See mount(2). Raises OSError that names the target."""
    _checked(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode("ascii") if kind else None,
            ctypes.c_ulong(flags),
            options.encode("ascii") if options else None,
        ),
        "mount " + target,
    )


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
