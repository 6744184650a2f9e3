"""The tiny jobs on a small Slurm in memory: what they leave behind, and what they are not believed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurmrest_adapter.doctor.jobs import Errand, NodeJob, look
from slurmrest_adapter.doctor.told import Findings
from slurmrest_adapter.domain.errors import Rejected
from slurmrest_adapter.identity.base import Owner
from tests.fakes.clock import FakeClock
from tests.fakes.slurm import FakeGateway, Kept

UID = os.geteuid() or 1001
ALICE = Owner("alice", "physics", uid=UID, gid=os.getegid() or 1001)


class Site:
    """Runs look(); `node` is what the job does on its node, two seconds after the submit."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.slurm = FakeGateway(self.clock)
        self.shared = directory / "pods"
        self.shared.mkdir(mode=0o711)
        self.said: list[str] = []
        self.say: Callable[[str], None] = self.said.append
        self.node: Callable[[Path], int] = lambda path: 0
        self.starts = True

    def __call__(self, *partitions: str | None, timeout: float = 60) -> list[NodeJob]:
        made = [NodeJob(name, ALICE) for name in partitions]
        self.clock.after(2, self._run)
        errand = Errand(
            self.slurm, self.shared, "/on/nodes", "#!/bin/sh\n", {"registries": []}, timeout,
            self.say, self.clock, self.clock.sleep,
        )  # fmt: skip
        look(errand, made)
        assert list(self.shared.iterdir()) == []  # whatever happened
        return made

    def _run(self) -> None:
        if not self.starts:
            return
        for job_id, kept in self.slurm.jobs.items():
            self.slurm.start(job_id)
            self.slurm.end(job_id, "COMPLETED", self.node(self._place(kept)))

    def _place(self, kept: Kept) -> Path:
        return self.shared / Path(kept.spec.environment["SRA_DOCTOR_DIR"]).name


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def write(place: Path, text: str) -> Path:
    path = place / "findings.json"
    path.write_text(text)
    os.chown(path, UID, -1)
    return path


def test_a_job_that_tells(site: Site, seen: dict[str, Any]) -> None:
    def node(place: Path) -> int:
        assert place.stat().st_mode & 0o777 == 0o700
        assert place.stat().st_uid == UID
        question = json.loads((place / "question.json").read_text())
        assert (place / "question.json").stat().st_mode & 0o777 == 0o400
        write(place, json.dumps({**seen, "nonce": question["nonce"]}))
        return 0

    site.node = node
    jobs = site("a", "b", None)
    assert [type(job.found) for job in jobs] == [Findings] * 3
    assert all(isinstance(job.found, Findings) and job.found.nonce == job.nonce for job in jobs)
    assert [job.spec.partition for job in jobs if job.spec] == ["a", "b", None]
    assert len({job.directory for job in jobs}) == 3
    assert site.slurm.cancels == []
    for job in jobs:
        assert job.spec is not None
        spec = job.spec
        # Other users see these fields.
        assert job.directory not in spec.name + spec.comment + spec.working_directory
        assert spec.environment["SRA_DOCTOR_DIR"] == f"/on/nodes/{job.directory}"
    assert any("partition a" in line for line in site.said)
    assert not any(job.directory in line for job in jobs for line in site.said)


def test_a_job_that_does_not_start_is_cancelled(site: Site) -> None:
    site.starts = False
    (job,) = site("a", timeout=10)
    assert not job.over
    assert site.slurm.cancels == [100]


def test_a_refusal(site: Site) -> None:
    site.slurm.refusal = Rejected(2045, "Invalid account")
    (job,) = site("a")
    assert job.ref is None
    assert "Invalid account" in str(job.error)


def test_slurm_that_goes_away_is_asked_again(site: Site, seen: dict[str, Any]) -> None:
    site.node = lambda place: 0 if write(place, json.dumps(seen)) else 1
    site.clock.after(0.5, lambda: setattr(site.slurm, "down", True))
    site.clock.after(5, lambda: setattr(site.slurm, "down", False))
    (job,) = site("a")
    assert job.over
    assert job.error is None
    assert isinstance(job.found, Findings)


def test_slurm_that_stays_away(site: Site) -> None:
    site.clock.after(0.5, lambda: setattr(site.slurm, "down", True))
    (job,) = site("a", timeout=10)
    assert not job.over
    assert job.error is not None


def test_findings_that_come_late(site: Site, seen: dict[str, Any]) -> None:
    def node(place: Path) -> int:
        site.clock.after(3, lambda: write(place, json.dumps(seen)))
        return 0

    site.node = node
    assert isinstance(site("a")[0].found, Findings)


def test_no_findings(site: Site) -> None:
    assert site("a")[0].found is None
    site.node = lambda place: 66
    (job,) = site("a")
    assert job.info is not None
    assert job.info.exit_code.return_code == 66


def link(place: Path) -> None:
    (place / "findings.json").symlink_to("/etc/passwd")


def fifo(place: Path) -> None:
    os.mkfifo(place / "findings.json")


def large(place: Path) -> None:
    write(place, '{"broken": "' + "x" * 300_000 + '"}')


def strange(place: Path) -> None:
    write(place, '{"python": {"path": [], "version": 1}}')


@pytest.mark.parametrize("write_it", [link, fifo, large, strange])
def test_findings_that_are_not_believed(site: Site, write_it: Callable[[Path], None]) -> None:
    def node(place: Path) -> int:
        write_it(place)
        return 0

    site.node = node
    (job,) = site("a")
    assert job.found is None
    assert job.untrusted


def test_an_interruption_ends_the_job(site: Site) -> None:
    def stop(text: str) -> None:
        if "PENDING" in text:
            raise KeyboardInterrupt

    site.say = stop
    with pytest.raises(KeyboardInterrupt):
        site("a")
    assert site.slurm.cancels == [100]
    assert list(site.shared.iterdir()) == []
