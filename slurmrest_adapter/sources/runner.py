"""What the pod runner wrote: its status file, checked before it is believed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurmrest_adapter.sources import runnerstatus
from slurmrest_adapter.sources.userfiles import Mark, UntrustedFile, open_file, read_changed

STATUS_FILE, LOG_FILE = "status.json", "runner.log"
_TAIL, _MOST_WORDS = 4096, 300  # bytes, characters
# A container's entry is about 500 bytes and its message is bounded by the runner.
LIMIT = 4 * 1024 * 1024
SCHEMAS = frozenset({1})


def read_status(root: Path, directory: str, owner: int | None, uid: str) -> Mapping[str, Any] | None:
    """The runner's newest status of a pod, or None when there is none yet.

    Args:
        root: shared_dir as this host sees it.
        directory: the pod's directory below it.
        owner: uid of the job's user.
        uid: the pod's UID; the status must speak of it.

    Raises:
        UntrustedFile: somebody else's file, too large, not JSON, a schema we do not know, or
            about another pod, or with a value of a kind that no runner writes.
    """
    return read_newer(root, directory, owner, uid, None)[0]


def read_newer(
    root: Path, directory: str, owner: int | None, uid: str, mark: Mark | None
) -> tuple[Mapping[str, Any] | None, Mark | None]:
    """`read_status` unless the file is as it was; see `userfiles.read_changed` for the mark."""
    data, mark = read_changed(root, (directory, STATUS_FILE), owner, LIMIT, mark)
    if data is None:
        return None, mark
    try:
        status = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UntrustedFile(f"{STATUS_FILE}: is no JSON") from error
    if not isinstance(status, dict) or status.get("schema") not in tuple(SCHEMAS):
        raise UntrustedFile(f"{STATUS_FILE}: an unknown schema")
    if status.get("uid") != uid:
        raise UntrustedFile(f"{STATUS_FILE}: speaks of another pod")
    return runnerstatus.checked(status), mark


def last_words(root: Path, directory: str, owner: int | None) -> str:
    """The last line of the runner's log, for a pod of which it wrote no status: why it could not start.

    Empty where there is none; printable and bounded, since the job's user may write anything there.

    Raises:
        UntrustedFile: see `read_status`.
    """
    descriptor = open_file(root, (directory, LOG_FILE), owner)
    if descriptor is None:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL))
        lines = stream.read(_TAIL).decode("utf-8", "replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(c if c.isprintable() else "?" for c in said)[:_MOST_WORDS]
