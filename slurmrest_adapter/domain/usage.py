"""What a job used, closed once at its end.

slurmdbd's record is the account that counts. Where there is none (no slurmdbd, or it cannot be
asked) the same numbers are taken from what was observed, and the record says so: `source` is
``slurmdbd`` or ``observed``, never a guess that looks like an account. What neither counted, and
the node's kernel told by SPANK events, is named in `from_events`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slurmrest_adapter.domain.gres import gpus_held
from slurmrest_adapter.domain.jobs import AccountingRecord, JobInfo
from slurmrest_adapter.domain.spank import NOTHING, Observed

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """A job's usage.

    Attributes:
        source: ``slurmdbd`` or ``observed``.
        elapsed_seconds: from start to end.
        wait_seconds: from submit to start; None when it never started.
        gpus: GPUs allotted; gpu_seconds is that times the elapsed seconds.
        cpus, cpu_seconds: the same for CPUs (allotted, not used).
        cpu_used_seconds: user and system time over all steps; None when nobody counted.
        memory_mib: MiB allotted.
        max_rss_mib: the largest task's peak, as the site's sampling saw it; None when nobody did.
        energy_joules: None where the site does not measure it.
        from_events: fields that SPANK events gave because the source had none.
    """

    source: str
    elapsed_seconds: int
    wait_seconds: int | None
    gpus: int
    gpu_seconds: int
    cpus: int
    cpu_seconds: int
    memory_mib: int
    cpu_used_seconds: float | None = None
    max_rss_mib: int | None = None
    energy_joules: int | None = None
    from_events: Sequence[str] = ()

    def words(self) -> str:
        """One line for people."""
        parts = [f"{self.gpu_seconds} GPU-seconds" if self.gpus else "no GPU"]
        parts.append(f"{self.cpu_seconds} CPU-seconds allotted")
        if self.cpu_used_seconds is not None:
            parts.append(f"{self.cpu_used_seconds:.1f} used")
        parts.append(f"{self.elapsed_seconds} s elapsed")
        if self.wait_seconds is not None:
            parts.append(f"{self.wait_seconds} s queued")
        also = f"; {', '.join(self.from_events)} by SPANK events" if self.from_events else ""
        return ", ".join(parts) + f" ({self.source}{also})"


def from_record(record: AccountingRecord, seen: Observed = NOTHING) -> Usage:
    """Usage from slurmdbd's record; what it has none of from the events."""
    found = _usage(
        "slurmdbd",
        record.elapsed_seconds,
        record.submit_time,
        record.start_time,
        record.tres_allocated,
        cpu_used_seconds=record.cpu_user_seconds + record.cpu_system_seconds,
        max_rss_mib=record.max_rss_mib,
        energy_joules=record.energy_joules,
    )
    return _filled(found, seen)


def from_job(job: JobInfo, seen: Observed = NOTHING) -> Usage:
    """Usage from the job as it was last seen, for sites whose slurmdbd cannot be asked."""
    elapsed = 0
    if job.start_time and job.end_time:
        elapsed = max(0, job.end_time - job.start_time)
    allocated = tres(job.tres_allocated)
    if not any(name == "gres/gpu" or name.startswith("gres/gpu:") for name in allocated):
        # A site that does not account GPUs (AccountingStorageTRES) shows them in gres_detail alone.
        allocated["gres/gpu"] = gpus_held(job.gres)
    return _filled(_usage("observed", elapsed, job.submit_time, job.start_time, allocated), seen)


def _filled(found: Usage, seen: Observed) -> Usage:
    """With what the node's kernel counted where nobody else did; 0 CPU-seconds is nobody's count."""
    told: dict[str, float | int] = {}
    if not found.cpu_used_seconds and seen.cpu_s:
        told["cpu_used_seconds"] = seen.cpu_s
    if found.max_rss_mib is None and seen.peak_bytes is not None:
        told["max_rss_mib"] = -(-seen.peak_bytes // _MIB)
    return replace(found, **told, from_events=tuple(told)) if told else found  # type: ignore[arg-type]


def tres(text: str) -> dict[str, int]:
    """Slurm's TRES string: ``cpu=4,mem=8G,gres/gpu:a100=2`` → numbers, memory in MiB."""
    found: dict[str, int] = {}
    powers = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if not name or not value:
            continue
        power = powers.get(value[-1].upper(), 0)
        digits = value[:-1] if power else value
        if name == "mem":
            power = power - 2 if power else 0  # without a unit it is MiB already
        try:
            found[name] = int(float(digits) * 1024.0**power)
        except (ValueError, OverflowError):  # no number, not a number, infinite
            continue
    return found


def gpu_count(allocated: Mapping[str, int]) -> int:
    """GPUs in a TRES map: the untyped sum where the site accounts it, else the typed ones."""
    if "gres/gpu" in allocated:
        return allocated["gres/gpu"]
    return sum(count for name, count in allocated.items() if name.startswith("gres/gpu:"))


def _usage(
    source: str,
    elapsed: int,
    submit: int | None,
    start: int | None,
    allocated: Mapping[str, int],
    cpu_used_seconds: float | None = None,
    max_rss_mib: int | None = None,
    energy_joules: int | None = None,
) -> Usage:
    gpus, cpus = gpu_count(allocated), allocated.get("cpu", 0)
    return Usage(
        source=source,
        elapsed_seconds=elapsed,
        wait_seconds=max(0, start - submit) if start and submit else None,
        gpus=gpus,
        gpu_seconds=gpus * elapsed,
        cpus=cpus,
        cpu_seconds=cpus * elapsed,
        memory_mib=allocated.get("mem", 0),
        cpu_used_seconds=cpu_used_seconds,
        max_rss_mib=max_rss_mib,
        energy_joules=energy_joules,
    )
