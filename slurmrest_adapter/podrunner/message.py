"""A container's last words for its status: the file it writes them to, else the end of its log."""

import os
import stat
from typing import List, Optional

from . import volumes

FROM_LOGS = "FallbackToLogsOnError"
_LONGEST = 4096  # bytes of the file, from its end, as with the kubelet
LOG_LONGEST, _LOG_LINES = 2048, 80


def bind(path: str, source: str, mounts: List[volumes.Bound]) -> str:
    """Add the file to what a container sees and answer where it lies on the node; raises OSError.

    A volume mounted at that very path is the file.
    """
    for bound in mounts:
        if bound.target == path:
            return bound.source
    if os.path.lexists(source):
        os.unlink(source)
    os.makedirs(os.path.dirname(source), mode=0o700, exist_ok=True)
    os.close(os.open(source, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    os.chmod(source, 0o666)  # whatever user the container believes to be
    volumes.place(mounts, volumes.Bound(source, path, False))
    return source


def read(source: Optional[str], log: Optional[bytes]) -> str:
    """The words; `log` is the end of the log where it may stand in for an empty file."""
    data = _tail(source) if source is not None else b""
    if not data and log is not None:
        lines = log.split(b"\n")
        last = 1 if lines[-1] == b"" else 0  # what follows the last newline is no line
        data = b"\n".join(lines[-_LOG_LINES - last :])
    return data.decode("utf-8", "replace")


def _tail(path: str) -> bytes:
    try:
        # A volume's file may be anything its containers made of it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return b""
        stream.seek(max(0, found.st_size - _LONGEST))
        return stream.read(_LONGEST)
