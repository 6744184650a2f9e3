"""Progress lines and errors of the labs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

_START = time.monotonic()
TAIL_LINES = 15


def say(words: str) -> None:
    """Print one progress line with the seconds since the start to standard error."""
    print(f"[{time.monotonic() - _START:6.2f}s] {words}", file=sys.stderr, flush=True)


class LabError(Exception):
    """Something failed; `log` is the file whose last lines explain it, `hint` what to do."""

    def __init__(self, message: str, *, log: Path | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.log = log
        self.hint = hint

    def __str__(self) -> str:
        parts = [super().__str__()]
        if self.log is not None:
            parts.append(f"--- the end of {self.log}:")
            parts.append(tail(self.log) or "(empty)")
        if self.hint:
            parts.append(f"what to do: {self.hint}")
        return "\n".join(parts)


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a text file, or an empty string if there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
