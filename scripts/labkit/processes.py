"""Daemons as processes: started, noted, found again, ended by pid, and their ports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .report import LabError


def _stat(pid: int) -> tuple[str, str, int] | None:
    """Return name, state and start time (clock ticks since boot) of a process, None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return name, rest[0], int(rest[19])


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def spawn(argv: Sequence[str], *, log: Path, note: Path, env: Mapping[str, str] | None = None) -> int:
    """Start a daemon in a session of its own, its output appended to `log`, and note it; return its pid."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=None if env is None else dict(env),
        )
    note_pid(note, process.pid)
    return process.pid


def note_pid(path: Path, pid: int) -> None:
    """Note a process so that it can be told from a later one with the same number, over a reboot too."""
    found = _stat(pid)
    path.write_text(json.dumps({"pid": pid, "start": found[2] if found else 0, "boot": _boot()}))


def noted_pid(path: Path) -> int | None:
    """Return the noted process id if that very process still lives."""
    try:
        noted = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    found = _stat(noted["pid"])
    if found is None or found[1] in "ZX" or found[2] != noted["start"] or noted["boot"] != _boot():
        return None
    return int(noted["pid"])


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again until it is true; False after that many seconds."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.03)
    return True


def end_process(pid: int, seconds: float = 15) -> None:
    """Send SIGTERM to one process, SIGKILL if it is still there after that many seconds."""
    found = _stat(pid)
    if found is None:
        return

    def gone() -> bool:
        now = _stat(pid)
        if now is None or now[2] != found[2]:
            return True
        # The first thread may be dead while others still hold the process's sockets.
        return now[1] in "ZX" and _threads(pid) <= 1

    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            return
        if wait_until(gone, seconds):
            return


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208  a process that ends meanwhile raises here
    except OSError:
        return 0


def answers(port: int) -> bool:
    """Say whether something accepts connections on that loopback port."""
    with socket.socket() as client:
        client.settimeout(2)
        return client.connect_ex(("127.0.0.1", port)) == 0


def check_port(name: str, port: int | None) -> None:
    """Raise LabError if the port of a daemon that does not run is taken."""
    if port is not None and answers(port):
        raise LabError(
            f"{name}: something else listens on 127.0.0.1:{port}",
            hint="end it, or give this lab other ports with --name and --port-base",
        )
