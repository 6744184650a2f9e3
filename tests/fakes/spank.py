"""Events as the SPANK plugin sends them."""

from __future__ import annotations

import json
from typing import Any

from slurmrest_adapter.sources.spank import parse, sign

KEY = b"0123456789abcdef0123456789abcdef"
STREAM = "0123456789abcdef"


def fields(kind: str = "allocated", **changes: Any) -> dict[str, Any]:
    """An event's JSON; None takes a field out."""
    event: dict[str, Any] = {
        "v": 1, "event": kind, "cluster": "lab", "node": "n1", "job": 100, "uid": 2001,
        "time": 1_700_000_010.5, "stream": STREAM, "seq": 1,
    }  # fmt: skip
    return {key: value for key, value in {**event, **changes}.items() if value is not None}


def body(kind: str = "allocated", **changes: Any) -> bytes:
    """An event's bytes."""
    return json.dumps(fields(kind, **changes)).encode()


def posted(kind: str = "allocated", key: bytes = KEY, **changes: Any) -> tuple[bytes, str]:
    """An event and its signature."""
    data = body(kind, **changes)
    return data, sign(key, data)


def event(kind: str = "allocated", **changes: Any) -> Any:
    """An event that was read."""
    return parse(body(kind, **changes))


def life(job: int = 100, start: float = 1_700_000_010, end: float = 1_700_000_020) -> list[dict[str, Any]]:
    """Changes for `fields`: everything the plugin tells of a pod's job, in order."""
    prolog, step, epilog = "a" * 16, "b" * 16, "c" * 16
    batch = {"job": job, "stream": step, "step": "batch", "gpus": [0, 1]}
    return [
        {"kind": "allocated", "job": job, "time": start, "stream": prolog, "seq": 1, "gpus": [0, 1]},
        {"kind": "step_start", "time": start + 0.1, "seq": 1, **batch},
        {"kind": "task_start", "time": start + 0.2, "seq": 2, "task": 0, **batch},
        {"kind": "task_exit", "time": end - 0.2, "seq": 3, "task": 0, "status": 0, "exit_code": 0, **batch},
        {"kind": "step_end", "time": end - 0.1, "seq": 4, "cpu_s": 1.5, "peak_bytes": 3 << 20, **batch},
        {"kind": "released", "job": job, "time": end, "stream": epilog, "seq": 1},
    ]
