"""The plan that came in the job's environment, where the site chose that: taken out, and gone.

A process's first environment stays in its memory, where ``/proc/PID/environ`` shows it, whatever is
unset later. So the pieces are overwritten there, before anything is started that could inherit them.
"""

import ctypes
import os
from typing import Optional, Tuple

from . import process

_COUNT, _PIECE, _PREFIX = "SRA_PLAN_PIECES", "SRA_PLAN_{}", "SRA_PLAN_"
_START, _END = 47, 48  # env_start and env_end among the fields after the program's name


def take() -> Optional[bytes]:
    """The plan's text, None if the environment has none. Raises OSError, ValueError if it is not whole."""
    found = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(_PREFIX)}
    if not found:
        return None
    _wipe()
    try:
        pieces = [found[_PIECE.format(number)] for number in range(int(found[_COUNT]))]
    except KeyError as error:
        raise ValueError("{} is missing in the job's environment".format(error.args[0]))

    def unpack() -> Tuple[bytes, str]:
        import base64  # both large, and not needed again
        import bz2

        try:
            return bz2.decompress(base64.b64decode("".join(pieces), validate=True)), ""
        except (OSError, ValueError) as error:
            return b"", str(error)

    text, problem = process.apart(unpack)
    if problem:
        raise ValueError(problem)
    return bytes(text)


def _wipe() -> None:
    """Overwrite the pieces where the kernel put them; raises OSError if they can still be read there."""
    with open("/proc/self/stat", "rb") as stream:
        fields = stream.read().rpartition(b")")[2].split()
    at, end = int(fields[_START]), int(fields[_END])
    for entry in ctypes.string_at(at, end - at).split(b"\0"):
        if entry.startswith(_PREFIX.encode("ascii")):
            ctypes.memset(at, 0, len(entry))
        at += len(entry) + 1
    with open("/proc/self/environ", "rb") as stream:
        if _PREFIX.encode("ascii") in stream.read():
            raise OSError("the plan could not be taken out of the environment")
