"""What a container uses of the node, sampled from /proc: processor time and memory.

Its processes are its first one and all below it. That is its whole PID namespace, since a process that
loses its parent there is given to the first one; in plain mode Apptainer's process is counted too.
"""

import os
from typing import Any, Dict, Iterable, Tuple

from . import process

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# To ask for the proportional size, the kernel walks all pages: for larger ones that takes too long.
_LARGE = 1 << 30
_NOTICED_SECONDS = 0.1
_NOTICED_BYTES = 1 << 20


def take(firsts: Iterable[int]) -> Dict[int, Tuple[float, int]]:
    """Seconds on a processor so far and bytes of memory, by the pid of a container's first process.

    The seconds count processes that have ended once their parent has waited for them. The bytes are
    proportional set sizes, and resident ones of processes that do not tell or have over 1 GiB.
    """
    stats = process.stats()
    found = {}
    for first in firsts:
        if first in stats:
            ticks = size = 0
            for pid in [first, *process.descendants(first, stats)]:
                ticks += sum(map(int, stats[pid][11:15]))  # utime, stime, cutime, cstime
                size += _memory(pid, int(stats[pid][21]) * _PAGE)
            found[first] = ticks * _TICK, size
    return found


def note(record: Dict[str, Any], seconds: float, size: int) -> bool:
    """Put a sample into a container's record; whether it tells anything new.

    What does not is left out, so that a pod that only waits does not write its record again and again.
    """
    record["memory_peak_bytes"] = max(record["memory_peak_bytes"] or 0, size)
    before = record["memory_bytes"]
    more = seconds - (record["cpu_s"] or 0.0)
    if before is None or more >= _NOTICED_SECONDS or abs(size - before) > max(_NOTICED_BYTES, before >> 4):
        record["memory_bytes"] = size
        total(record, seconds)
        return True
    return False


def total(record: Dict[str, Any], seconds: float) -> None:
    """Put the seconds on a processor into a record; they never become less."""
    record["cpu_s"] = max(record["cpu_s"] or 0.0, round(seconds, 3))


def _memory(pid: int, resident: int) -> int:
    if 0 < resident <= _LARGE:
        try:
            with open("{}/{}/smaps_rollup".format(process.PROC, pid), "rb") as stream:
                for line in stream:
                    if line.startswith(b"Pss:"):
                        return int(line.split()[1]) * 1024
        except OSError:  # a kernel before 4.14, or it is not ours to see
            pass
    return resident
