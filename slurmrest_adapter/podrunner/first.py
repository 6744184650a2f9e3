"""Programs of a few hundred bytes that take the place of a whole interpreter where one only waits.

The first process of a container's PID namespace has duties, and TERM's default action does not count
for it, so the container's own program is not it but PID 2. What stands before it waits for every process
that is left to it, writes the status of PID 2 as `waitpid` gives it on descriptor 3, and ends, which ends
all that is left in the namespace.

The processes around the runner's own namespaces wait for one child, write a T on descriptor 3 for each
TERM and INT, and end as the child did: 128+s after signal s. In plain mode one with no child to wait
for tells by an S that TERM came to more than the batch process.
"""

import os
import signal
import struct
from typing import Dict, Optional

from . import syscalls
from .light import suppress

# The same few system calls for each processor, made by its assembler from:
#
#   again: wait4(-1, &status, 0, 0) -> pid; if pid == -EINTR goto again; if pid < 0 goto done
#          if pid != 2 goto again; write(3, &status, 4)
#   done:  exit_group(0)
_INIT = {
    "x86_64": "506aff5f4889e631d24531d26a3d580f0583f8fc74eb85c0781383f80275e2"
    "6a035f4889e66a045a6a01580f0531ffb8e70000000f05",
    "aarch64": "ff4300d100008092e1030091020080d2030080d2882080d2010000d41f100031"
    "20ffff540001f8371f080071c1feff54600080d2e1030091220080d2080880d2010000d4"
    "000080d2c80b80d2010000d4",
}
# The set of signals (blocked already) and the child's pid follow the code:
#
#   again: rt_sigtimedwait(&set, 0, 0, 8) -> number; if number > 0 and number != SIGCHLD: write(3, "T", 1)
#          wait4(child, &status, WNOHANG, 0) -> pid; if pid <= 0 goto again
#          exit_group(status & 127 ? 128 + (status & 127) : status >> 8 & 255)
_RELAY = {
    "x86_64": "6a7f58ffc0488d3d5c00000031f6996a08415a0f0583f811741685c07e126a01586a035f488d3535000000"
    "6a015a0f056a3d588b3d37000000524889e66a015a4531d20f055f85c07eb689f883e77f740583ef80eb030fb6fc"
    "b8e70000000f05540f1f8000000000",
    "aarch64": "40040010010080d2020080d2030180d2281180d2010000d41f440071000100541f000071cd000054600080d2"
    "a1020010220080d2080880d2010000d4a0020018ff4300d1e1030091220080d2030080d2882080d2010000d4e10741b8"
    "1f0000710dfdff5420180072600000540000021102000014203c0853c80b80d2010000d4540000001f2003d5",
}
_WORD = -16  # where in these the T is
_NUMBERS = {"x86_64": 62, "aarch64": 183}  # of ELF
_AT = 0x400000
_HEADER, _SEGMENT = 64, 56  # bytes of ELF's headers
RELAYED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def program(machine: Optional[str] = None) -> Optional[bytes]:
    """The first process as an ELF file for a machine (as `uname -m` names it); None if there is none."""
    return _elf(_INIT, machine or os.uname().machine)


def relay(child: int, machine: Optional[str] = None, word: bytes = b"T") -> Optional[bytes]:
    """The program that waits for `child`, likewise; `word` is the byte that it writes."""
    mask = sum(1 << number - 1 for number in RELAYED)
    codes = {name: code[:_WORD] + word.hex() + code[_WORD + 2 :] for name, code in _RELAY.items()}
    return _elf(codes, machine or os.uname().machine, struct.pack("<Qi", mask, child))


def _elf(codes: Dict[str, str], machine: str, data: bytes = b"") -> Optional[bytes]:
    if machine not in codes:
        return None
    code = bytes.fromhex(codes[machine]) + data
    start = _HEADER + _SEGMENT
    size = start + len(code)
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)  # 64 bits, little-endian, version 1
    header = struct.pack(
        "<HHIQQQIHHHHHH", 2, _NUMBERS[machine], 1, _AT + start, _HEADER, 0, 0, _HEADER, _SEGMENT, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _AT, _AT, size, size, 0x1000)  # loaded, read and execute
    return identity + header + segment + code


def prepare(path: str) -> int:
    """Write the first process to `path` if it is not there, and open it; -1 if this machine has none.

    For one process at a time: a file that another still writes cannot be executed.
    """
    text = program()
    if text is None:
        return -1
    if not os.path.exists(path):
        temporary = path + ".new"
        with open(temporary, "wb") as stream:
            stream.write(text)
        os.chmod(temporary, 0o500)
        os.rename(temporary, path)
    return os.open(path, os.O_RDONLY)


def become(executable: int, report: int) -> None:
    """Be the first process until PID 2 has ended; `executable` is what `prepare` answered.

    `report` is the descriptor for the status.
    """
    if executable >= 0:
        _execute(executable, report)
    os.dup2(report, 3)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == 2:
            os.write(3, struct.pack("<i", status))
            os._exit(0)


def become_relay(child: int, target: int, word: bytes = b"T") -> None:
    """Be the relay between who signals us and `target` until `child` has ended.

    The signals of `RELAYED` must be blocked. Comes back if this node cannot have it.
    """
    text = relay(child, None, word)
    with suppress(OSError):
        if text is not None:
            executable = syscalls.memory_file("relay")
            os.write(executable, text)
            _execute(executable, target)


def listen(target: int) -> None:
    """Be the one to write an S to `target` at each TERM, until somebody ends us.

    What comes to this process, which nobody knows of, comes to every process of the job.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, RELAYED)
    become_relay(os.getpid(), target, b"S")  # no child of ours, so that it never ends


def _execute(executable: int, third: int) -> None:
    """Execute a program whose descriptor 3 is `third`; comes back if the node cannot."""
    if executable == 3:
        executable = os.dup(executable)
    os.dup2(third, 3)
    os.set_inheritable(3, True)
    with suppress(OSError):
        os.execve(executable, ["podrunner"], {})
