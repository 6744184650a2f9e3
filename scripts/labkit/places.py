"""Where labs and caches lie, their locks and their notes."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .report import LabError, say


def cache_dir() -> Path:
    """Return the directory of all state and caches; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "slurmrest-adapter"


def lab_dir(name: str) -> Path:
    """Return the directory of a lab. Raises LabError for a name that cannot be one."""
    if not name or "/" in name or name.startswith("."):
        raise LabError(f"--name: not a usable name: {name!r}")
    return cache_dir() / "labs" / name


def read_notes(name: str, kind: str) -> dict[str, object]:
    """Return what a lab has noted about itself, empty if there is none.

    Raises LabError if the lab of that name is of another kind.
    """
    noted: dict[str, object] = {}
    with suppress(OSError, ValueError):
        noted = json.loads((lab_dir(name) / "lab.json").read_text())
    if noted and noted.get("kind", "slurm") != kind:
        raise LabError(f"--name {name}: that is a lab of the kind {noted['kind']}, choose another name")
    return noted


def write_notes(name: str, kind: str, values: Mapping[str, object]) -> None:
    """Note what a lab is made of, so that --name alone finds it again."""
    directory = lab_dir(name)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "lab.json").write_text(json.dumps({"kind": kind, **values}) + "\n")


def check_notes(noted: Mapping[str, object], given: Mapping[str, object], name: str, program: str) -> None:
    """Raise LabError if an option that was given (not None) differs from what the lab is made of."""
    for key, value in given.items():
        if key in noted and value not in (None, noted[key]):
            option = key.replace("_", "-")
            raise LabError(
                f"--{option} {value}: the lab {name} exists with {noted[key]}",
                hint=f"choose another --name, or take it away: {program} down --wipe --name {name}",
            )


@contextmanager
def locked(what: str) -> Iterator[None]:
    """Hold the lock of that name, waiting for others that hold it; it goes with the process."""
    path = cache_dir() / "locks" / f"{what}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another command that works on {what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def remove_tree(path: Path) -> None:
    """Remove a file or directory with all in it, if it is there, never crossing into another file system."""
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(path)], check=True)
