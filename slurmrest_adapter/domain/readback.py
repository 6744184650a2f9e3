"""What a site made of a job: the job as Slurm took it, beside what was asked for.

A site's submit plugin may change any field of a job, and its defaults fill what was left open. Both
are the site's right and no error, but the pod's owner should see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurmrest_adapter.domain.jobs import JobInfo
from slurmrest_adapter.domain.usage import tres


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs.

    Attributes:
        field: name, account, partition, qos, cpus, memory_mib, time_limit_minutes, gres or comment.
        asked: None where the choice was left to the site.
        got: as Slurm has it.
    """

    field: str
    asked: str | int | None
    got: str | int


def changes(spec: Mapping[str, Any], job: JobInfo) -> tuple[Change, ...]:
    """What differs, in a fixed order; a field that Slurm does not show counts as unchanged.

    Args:
        spec: the JobSpec as `dataclasses.asdict` gives it.
        job: as read after the submit; it may run already.
    """
    return tuple(Change(*found) for found in _differing(spec, job))


def words(changed: Sequence[Mapping[str, Any]]) -> str:
    """For people: ``partition: gpu instead of cpu, cpus: 2 instead of 1``.

    What was left to the site is its choice and nothing to tell; "" when that is all there is.
    """
    return ", ".join(
        f"{one['field']}: {one['got']} instead of {one['asked']}"
        for one in changed
        if one["asked"] is not None
    )


def _differing(spec: Mapping[str, Any], job: JobInfo) -> Iterator[tuple[str, str | int | None, str | int]]:
    if job.name and job.name != spec["name"]:
        yield "name", spec["name"], job.name
    # Slurm keeps account and QOS names in lower case.
    for field, got in (("account", job.account), ("partition", job.partition), ("qos", job.qos)):
        asked = spec.get(field) or None
        # Of several partitions one remains once the job has started.
        allowed = asked.lower().split(",") if asked and field == "partition" else [(asked or "").lower()]
        if got and got.lower() not in allowed and got.lower() != (asked or "").lower():
            yield field, asked, got
    numbers = (
        ("cpus", job.cpus),
        ("memory_mib", job.memory_mib),
        ("time_limit_minutes", job.time_limit_minutes),
    )
    for field, number in numbers:
        if number is not None and number != spec.get(field):
            yield field, spec.get(field), number
    yield from _gres(spec, job)
    if job.comment != spec["comment"]:
        yield "comment", spec["comment"], job.comment


def _gres(spec: Mapping[str, Any], job: JobInfo) -> Iterator[tuple[str, str | None, str]]:
    """GPUs by their totals, and by type where a type was asked for."""
    if not job.tres_requested:
        return
    asked: dict[str, int] = {}
    for gpu in spec.get("gpus", ()):
        keys = {f"gres/{gpu['name']}", f"gres/{gpu['name']}:{gpu['type']}" if gpu["type"] else ""} - {""}
        for key in keys:
            asked[key] = asked.get(key, 0) + gpu["count"]
    got = {key: count for key, count in tres(job.tres_requested).items() if key.startswith("gres/")}
    if asked and not got and job.tres_per_node:
        # A site that does not account its GRES (AccountingStorageTRES) does not count them here,
        # and the job asks for them all the same.
        return
    if any(got.get(key) != count for key, count in asked.items()) or any(
        key not in asked for key in got if ":" not in key
    ):
        yield "gres", _tres(asked) or None, _tres(got)


def _tres(counts: Mapping[str, int]) -> str:
    return ",".join(f"{key}={counts[key]}" for key in sorted(counts))
