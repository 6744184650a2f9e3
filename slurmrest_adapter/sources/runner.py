"""What the pod runner wrote: its status file, checked before it is believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurmrest_adapter.sources import runnerstatus
from slurmrest_adapter.sources.userfiles import Mark, UntrustedFile, read_changed

STATUS_FILE = "status.json"
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
