"""Every lab with every API version its slurmrestd serves, and small jobs to ask about."""

from __future__ import annotations

import shlex
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.domain.errors import SlurmError
from slurmrest_adapter.domain.jobs import AccountingRecord, JobInfo
from slurmrest_adapter.domain.jobspec import JobSpec
from slurmrest_adapter.slurm import negotiate
from slurmrest_adapter.slurm.build import TokenSettings, build_gateway
from slurmrest_adapter.slurm.gateway import Gateway

ROOT = Path(__file__).parents[3]
SLURM_LAB = ROOT / "scripts" / "slurm-lab"
OPERATOR = "slurmrest"
SLEEP = "#!/bin/sh\nsleep 60\n"
NOTHING = "#!/bin/sh\n"
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}
UNKNOWN_JOB = 10_000_000
# Which versions each release serves: those it printed a specification of.
SPECS = ROOT / "openapi"
RELEASES = sorted(path.name for path in SPECS.iterdir() if path.is_dir())
SERVED = {release: sorted(path.stem for path in (SPECS / release).glob("v*.json")) for release in RELEASES}


@dataclass(frozen=True)
class Site:
    """A lab that is up."""

    release: str
    profile: str
    env: dict[str, str]

    def lab(self, *arguments: str) -> str:
        """Run scripts/slurm-lab for this lab and return what it printed."""
        command = [str(SLURM_LAB), "--name", self.env["LAB_NAME"], *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    @property
    def endpoint(self) -> str:
        return self.env["LAB_REST"]

    @property
    def minted(self) -> TokenSettings:
        """Each user with a token of their own."""
        return TokenSettings("hs256", key_file=self.env["LAB_JWT_KEY"])

    @cached_property
    def served(self) -> tuple[str, ...]:
        """The versions its slurmrestd serves, whether we speak them or not."""
        gateway = build_gateway([self.endpoint], self.minted)
        found = negotiate.served(lambda version: gateway._serves(version, "alice"))
        gateway.close()
        return found

    def gateway(self, version: str = "auto", token: TokenSettings | None = None, **settings: Any) -> Gateway:
        """A gateway that speaks one version."""
        return build_gateway([self.endpoint], token or self.minted, api_version=version, **settings)


@dataclass
class Room:
    """A gateway of one site in one version, and the jobs that a test made there."""

    site: Site
    version: str
    gateway: Gateway
    made: list[JobSpec] = field(default_factory=list)
    jobs: list[tuple[int, str]] = field(default_factory=list)

    def spec(self, user: str = "alice", **fields: Any) -> JobSpec:
        """A small job with a name of its own."""
        spec = JobSpec(
            name=f"gw-{uuid.uuid4().hex[:12]}",
            comment=f"sra1:{uuid.uuid4().hex}",
            user=user,
            partition="all",
            memory_mib=16,
            time_limit_minutes=3,
        )
        return replace(spec, **fields)

    def submit(self, script: str = SLEEP, spec: JobSpec | None = None, **fields: Any) -> int:
        """Submit a small job and return its id; what is left of it is cancelled after the test."""
        spec = spec or self.spec(**fields)
        job_id = self.gateway.submit(spec, script).job_id
        self.jobs.append((job_id, spec.user))
        return job_id

    def running(self, job_id: int, user: str = "alice") -> JobInfo:
        """Wait until it runs."""
        found: JobInfo = wait(lambda: self.gateway.job(job_id, user), lambda job: "RUNNING" in job.states)
        return found

    def ended(self, job_id: int, user: str = "alice") -> AccountingRecord:
        """The record once slurmdbd has the end, with the steps."""
        found: AccountingRecord = wait(
            lambda: self.gateway.accounting(job_id, user),
            lambda record: record is not None and record.end_time,
        )
        return found

    def tidy(self) -> None:
        """Cancel all that the test made."""
        for user in {user for _, user in self.jobs}:
            self.gateway.cancel_many([job_id for job_id, owner in self.jobs if owner == user], user)


def wait(ask: Callable[[], Any], enough: Callable[[Any], Any], seconds: float = 60) -> Any:
    """Ask until the answer is enough."""
    end = time.monotonic() + seconds
    while not enough(answer := ask()):
        assert time.monotonic() < end, f"still {answer}"
        time.sleep(0.1)
    return answer


def refusal(call: Callable[[], Any]) -> SlurmError:
    """What a call is refused with."""
    with pytest.raises(SlurmError) as caught:
        call()
    return caught.value


_SITES: dict[tuple[str, str], Site] = {}


def site_of(release: str, profile: str = "default") -> Site:
    """The lab of a release and profile, brought up once."""
    if (release, profile) not in _SITES:
        options = ["--version", release, "--profile", profile]
        subprocess.run([SLURM_LAB, "up", *options], check=True, capture_output=True)
        printed = subprocess.run(
            [SLURM_LAB, "env", *options], check=True, capture_output=True, text=True
        ).stdout
        env = dict(word.split("=", 1) for word in shlex.split(printed))
        _SITES[release, profile] = Site(release, profile, env)
    return _SITES[release, profile]


@pytest.fixture(params=RELEASES)
def site(request: pytest.FixtureRequest) -> Site:
    """The default lab of each release."""
    return site_of(request.param)


@pytest.fixture(params=[(r, v) for r in RELEASES for v in SERVED[r]], ids=lambda pair: "-".join(pair))
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    """Each release through each version it serves; the operator asks in bulk."""
    release, version = request.param
    site = site_of(release)
    if version not in site.served:
        pytest.skip(f"the suite has moved on: this lab serves {', '.join(site.served)}")
    made = Room(site, version, site.gateway(version, service_user=OPERATOR))
    yield made
    made.tidy()
    made.gateway.close()
