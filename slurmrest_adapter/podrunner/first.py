"""The first process of a container's PID namespace, as a program of a few hundred bytes.

PID 1 has duties, and TERM's default action does not count for it, so the container's own program is
not it but PID 2. What stands before it waits for every process that is left to it, writes the status
of PID 2 as `waitpid` gives it on descriptor 3, and ends, which ends all that is left in the namespace.
A fork of the runner would do, but keep a whole interpreter in memory for every container.
"""

import contextlib
import os
import struct
from typing import Optional

# The same few system calls for each processor, made by its assembler from:
#
#   again: wait4(-1, &status, 0, 0) -> pid; if pid == -EINTR goto again; if pid < 0 goto done
#          if pid != 2 goto again; write(3, &status, 4)
#   done:  exit_group(0)
_CODE = {
    "x86_64": (
        62,
        "506aff5f4889e631d24531d26a3d580f0583f8fc74eb85c0781383f80275e2"
        "6a035f4889e66a045a6a01580f0531ffb8e70000000f05",
    ),
    "aarch64": (
        183,
        "ff4300d100008092e1030091020080d2030080d2882080d2010000d41f100031"
        "20ffff540001f8371f080071c1feff54600080d2e1030091820080d2080880d2010000d4"
        "000080d2c80b80d2010000d4",
    ),
}
_AT = 0x400000
_HEADER, _SEGMENT = 64, 56  # bytes of ELF's headers


def program(machine: Optional[str] = None) -> Optional[bytes]:
    """The program as an ELF file for a machine (as `uname -m` names it); None if there is none."""
    known = _CODE.get(machine or os.uname().machine)
    if known is None:
        return None
    number, code = known[0], bytes.fromhex(known[1])
    start = _HEADER + _SEGMENT
    size = start + len(code)
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian, version 1
    header = struct.pack(
        "<HHIQQQIHHHHHH", 2, number, 1, _AT + start, _HEADER, 0, 0, _HEADER, _SEGMENT, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _AT, _AT, size, size, 0x1000)  # loaded, read and execute
    return identity + header + segment + code


def prepare(path: str) -> int:
    """Write the program to `path` if it is not there, and open it; -1 if there is none for this machine."""
    text = program()
    if text is None:
        return -1
    if not os.path.exists(path):
        temporary = "{}.{}".format(path, os.getpid())
        with open(temporary, "wb") as stream:
            stream.write(text)
        os.chmod(temporary, 0o500)
        os.rename(temporary, path)
    return os.open(path, os.O_RDONLY)


def become(executable: int, report: int) -> None:
    """Be the first process until PID 2 has ended; `executable` is what `prepare` answered.

    `report` is the descriptor for the status.
    """
    if executable == 3:
        executable = os.dup(executable)
    os.dup2(report, 3)
    os.set_inheritable(3, True)
    if executable >= 0:
        with contextlib.suppress(OSError):  # a node that cannot execute it
            os.execve(executable, ["init"], {})
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == 2:
            os.write(3, struct.pack("<i", status))
            os._exit(0)
