"""The pod's record in ``status.json`` and the claim that keeps a second copy of a job from running.

The record is replaced by a rename, so a reader sees the old one or the new one, never half of one.
`seq` grows with every write, over requeues of the job too.
"""

import os
import time
from typing import Any, Dict, List, Optional, Tuple

from . import VERSION, process

SCHEMA = 1
NAME = "status.json"
CLAIM = "claim"
# What of a container's record is about one run of it.
RUN = (
    "exit_code", "signal", "reason", "message", "started_at", "finished_at",
    "cpu_s", "memory_bytes", "memory_peak_bytes",
)  # fmt: skip


class Status:
    """The record and its file; change `containers`, `mode`, `phase` and `end`, then `write`."""

    def __init__(self, directory: str, uid: str, job: Dict[str, Any], python: str) -> None:
        self._path = os.path.join(directory, NAME)
        self._seq, self._before = _last(self._path)
        self.uid = uid
        self.job = job
        self.mode = "plain"
        self.python = python
        self.phase = "starting"
        self.end: Optional[Dict[str, Any]] = None
        self.containers: List[Dict[str, Any]] = []

    def record(self) -> Dict[str, Any]:
        """The record as it is written; times are seconds since the epoch."""
        return {
            "schema": SCHEMA,
            "uid": self.uid,
            "seq": self._seq,
            "time": round(time.time(), 3),
            "job": self.job,
            "runner": {"version": VERSION, "mode": self.mode, "python": self.python},
            "phase": self.phase,
            "end": self.end,
            "containers": self.containers,
        }

    def before(self, name: str) -> Tuple[int, Optional[Dict[str, Any]]]:
        """The restart count and the last state to begin with.

        In a job that Slurm started again, a container that ran before is restarted by that. One without
        a record of its end was killed with its runner.
        """
        if not self.job["restart"]:
            return 0, None
        old = self._before.get(name)
        if old is None:
            return int(self.job["restart"]), None
        last = old["last_state"]
        if old["started_at"] is not None or old["state"] == "terminated":
            last = {key: old.get(key) for key in RUN}
            if old["state"] != "terminated":
                last.update(exit_code=137, reason="ContainerStatusUnknown")
        return old["restart_count"] + (last is not None), last

    def write(self) -> None:
        """Replace the file. An error is said in runner.log and does not end the pod."""
        self._seq += 1
        temporary = "{}.{}.tmp".format(self._path, os.getpid())
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as stream:
                stream.write(encode(self.record()))
            os.rename(temporary, self._path)
        except OSError as error:
            print("status.json not written: {}".format(error), flush=True)


_ESCAPES = {number: "\\u{:04x}".format(number) for number in [*range(32), ord('"'), ord("\\")]}


def encode(value: Any) -> bytes:
    """Plain values as JSON. The `json` module would be a quarter of the runner's memory."""
    return _encode(value).encode("utf-8", "backslashreplace")  # a lone surrogate as JSON escapes it, too


def _encode(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.translate(_ESCAPES) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(_encode(key) + ":" + _encode(item) for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_encode, value)) + "]"
    return "null" if value is None else repr(value).lower()  # a number, or a truth value


def waiting(
    name: str,
    init: bool,
    image: str,
    reason: str,
    before: Tuple[int, Optional[Dict[str, Any]]],
    gpus: List[str],
) -> Dict[str, Any]:
    """A container's record before it has started; `before` as `Status.before` answers it."""
    return {
        "name": name,
        "init": init,
        "state": "waiting",
        **dict.fromkeys(RUN),
        "reason": reason,
        "message": "",
        "image": image,
        "image_id": None,
        "restart_count": before[0],
        "last_state": before[1],
        "gpus": gpus,
    }


def claim(directory: str, job_id: str) -> Optional[str]:
    """Claim the pod for a job; None if it is ours, else the id of the job that has it.

    The claim is made by linking a finished file, so that nobody ever reads an empty one; where the
    file system has no hard links, by an exclusive create.
    """
    path = os.path.join(directory, CLAIM)
    temporary = "{}.{}.{}".format(path, job_id, os.getpid())
    content = (job_id + "\n").encode("ascii")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
        stream.write(content)
    try:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return _holder(path, job_id)
        except OSError:
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                return _holder(path, job_id)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
        return None
    finally:
        os.unlink(temporary)


def _holder(path: str, job_id: str) -> Optional[str]:
    with open(path) as stream:
        holder = stream.read().strip()
    return None if holder == job_id else holder or "unknown"


def _last(path: str) -> Tuple[int, Dict[str, Dict[str, Any]]]:
    """The sequence number of the record that is there, and its containers by name."""

    def read() -> Tuple[int, Dict[str, Dict[str, Any]]]:
        import json  # large, and not needed again

        try:
            with open(path) as stream:
                data = json.load(stream)
            return data["seq"], {one["name"]: one for one in data["containers"]}
        except (OSError, ValueError, KeyError, TypeError):
            return 0, {}

    found: Tuple[int, Dict[str, Dict[str, Any]]] = process.apart(read) if os.path.lexists(path) else (0, {})
    return found
