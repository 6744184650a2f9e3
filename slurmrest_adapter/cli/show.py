"""What people see: tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from slurmrest_adapter.domain import readback
from slurmrest_adapter.domain.spank import Observed
from slurmrest_adapter.domain.usage import Usage
from slurmrest_adapter.store.base import StoryLine
from slurmrest_adapter.tracking.driver.follow import Seen
from slurmrest_adapter.translate.status import rfc3339

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Wide enough for a pipe: a table that is cut in a log file tells nobody anything.
_PIPE_WIDTH = 160


def console(stderr: bool = False) -> Console:
    """Standard output or error; as wide as the terminal, or a fixed width without one."""
    from rich.console import Console  # only what prints tables needs it

    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=_PIPE_WIDTH)


def json_document(document: Mapping[str, Any]) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def pods(seen: Sequence[Seen]) -> None:
    """One line a pod."""
    table = _table()
    for heading in ("POD", "PHASE", "REASON", "JOB", "STATE", "NODE", "GPUS", "EXIT", "UID"):
        table.add_column(heading, overflow="fold")
    for one in seen:
        record, status = one.record, one.status
        table.add_row(
            f"{record.namespace}/{record.name}",
            status.phase,
            status.reason or "-",
            str(record.job_id or "-"),
            one.standing.words or "-",
            status.node or "-",
            indices(status.gpus),
            "-" if status.exit_code is None else str(status.exit_code),
            record.uid,
        )
    console().print(table)


def pod(seen: Seen, story: Sequence[StoryLine] = (), stderr: bool = False) -> None:
    """One pod in full: its line, its containers, its message, its usage, its story."""
    out = console(stderr)
    record, status = seen.record, seen.status
    head = f"{record.namespace}/{record.name}  {status.phase}"
    head += f" ({status.reason})" if status.reason else ""
    out.print(head, markup=False, style="bold")
    facts = [f"job {record.job_id or '-'}", f"user {record.user}", f"node {status.node or '-'}"]
    facts += [f"GPUs {indices(status.gpus)}"] if record.spec.get("gpus") else []
    facts += [] if status.exit_code is None else [f"exit code {status.exit_code}"]
    out.print("  " + ", ".join(facts), markup=False)
    out.print("  " + status.message, markup=False)
    for warning in record.warnings:
        out.print(f"  Slurm warns: {warning}", markup=False)
    if changed := readback.words(record.changed or ()):
        out.print(f"  the site set {changed}", markup=False)
    if seen.observed.events:
        out.print("  " + told_by_node(seen.observed), markup=False)
    out.print(_containers(seen))
    if record.usage:
        known = {key: value for key, value in record.usage.items() if key in Usage.__dataclass_fields__}
        out.print(f"usage: {Usage(**known).words()}", markup=False)
    for line in story:
        out.print(f"  {rfc3339(line.time)}  {line.event:<9} {line.text}", markup=False)


def indices(gpus: Sequence[Any]) -> str:
    """GPU indices for people: ``0,1``, ``-`` without any."""
    return ",".join(str(index) for index in gpus) or "-"


def told_by_node(seen: Observed) -> str:
    """What SPANK events say, in one line."""
    parts = [f"node {seen.node} told"]
    parts += [f"start {rfc3339(seen.started)}"] if seen.started else []
    parts += [f"end {rfc3339(seen.ended)}"] if seen.ended else []
    parts += [f"GPUs {indices(seen.gpus)}"] if seen.gpus else []
    parts += [f"{seen.cpu_s:.1f} CPU-seconds used"] if seen.cpu_s is not None else []
    parts += [f"peak {-(-seen.peak_bytes // 2**20)} MiB"] if seen.peak_bytes is not None else []
    return ", ".join(parts) + f" ({seen.events} SPANK events)"


def _table() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False)


def _containers(seen: Seen) -> Table:
    table = _table()
    for heading in ("CONTAINER", "STATE", "REASON", "EXIT", "GPUS", "MESSAGE"):
        table.add_column(heading, overflow="fold")
    gpus = {c["name"]: c.get("gpus") or () for c in seen.record.runner.get("containers", ())}
    for kind, group in (("init ", seen.status.init_containers), ("", seen.status.containers)):
        for status in group:
            (state, detail), *_ = status["state"].items()
            code = detail.get("exitCode")
            table.add_row(
                kind + status["name"],
                state,
                detail.get("reason") or "-",
                "-" if code is None else str(code),
                indices(gpus.get(status["name"], ())),
                detail.get("message") or "",
            )
    return table
