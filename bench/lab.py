"""The Slurm lab for benchmarks: jobs that never start, and their end."""

from __future__ import annotations

import shlex
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.runtimes.apptainer import ApptainerRuntime
from slurmrest_adapter.slurm.build import TokenSettings, build_gateway
from slurmrest_adapter.slurm.gateway import Gateway

PROGRAM = Path(__file__).parents[1] / "scripts" / "slurm-lab"
USER = "alice"


def slurm_lab(*arguments: str) -> str:
    """Calls scripts/slurm-lab and returns what it printed."""
    return subprocess.run([PROGRAM, *arguments], check=True, capture_output=True, text=True).stdout


@dataclass
class Lab:
    """A running lab, and the jobs that a benchmark left in it.

    Attributes:
        url: its slurmrestd.
        gateway: with tokens of its own; a service user asks in bulk, as sites have it.
        headers: of `USER`, for bare requests.
        held: id of a held job on which all others depend, so that none of them ever starts.
    """

    url: str
    gateway: Gateway
    headers: dict[str, str]
    held: int
    script: str
    jobs: list[int] = field(default_factory=list)

    def spec(self) -> JobSpec:
        """A new job as pods make them; it waits for one that is held."""
        digits = uuid.uuid4().hex
        return JobSpec(
            name=f"bench-{digits[:12]}",
            comment=f"sra1:{digits * 4}.{digits[:16]}",
            user=USER,
            account="physics",
            partition="all",
            memory_mib=100,
            time_limit_minutes=10,
            dependency=f"singleton,afterok:{self.held}",
            environment={"PATH": "/usr/bin:/bin", "HOME": "/", "SRA_POD_DIR": f"/shared/pods/{digits}"},
        )

    def submit_url(self) -> str:
        """Where jobs of the negotiated version are posted."""
        return f"{self.url}/slurm/{self.gateway.api_version}/job/submit"

    def body(self, spec: JobSpec) -> Any:
        """What the gateway posts for this job."""
        return self.gateway._binding(USER).submit(spec, self.script, name_owner=False).body


@contextmanager
def lab() -> Iterator[Lab]:
    """The default lab, up; every job of `Lab.jobs` and the held one is cancelled at the end."""
    slurm_lab("up")
    settings = dict(word.split("=", 1) for word in shlex.split(slurm_lab("env")))
    gateway = build_gateway(
        [settings["LAB_REST"]],
        TokenSettings("hs256", key_file=settings["LAB_JWT_KEY"]),
        service_user="slurmrest",
    )
    headers = {"X-SLURM-USER-NAME": USER, "X-SLURM-USER-TOKEN": slurm_lab("token", USER).strip()}
    held = int(slurm_lab("exec", "--as", USER, "sbatch", *HELD))
    gateway.ping()  # negotiates
    made = Lab(settings["LAB_REST"], gateway, headers, held, _script())
    try:
        yield made
    finally:
        end(made, [*made.jobs, held])
        gateway.close()


HELD = ("--parsable", "--hold", "-A", "physics", "-p", "all", "-t", "10", "-o", "/dev/null", "--wrap", "true")


def end(made: Lab, job_ids: list[int]) -> None:
    """Cancel these jobs in one request."""
    url = f"{made.url}/slurm/{made.gateway.api_version}/jobs/"
    body = {"jobs": [str(job_id) for job_id in job_ids]}
    requests.delete(url, json=body, headers=made.headers, timeout=60).raise_for_status()


def _script() -> str:
    return ApptainerRuntime(insecure_registries=(), cache=None, mode="auto", python="python3").job_script()
