"""The command: exit codes, the table, the document, and what is skipped because of what.

After a change that is meant: ``REGENERATE_GOLDEN=1 python -m pytest tests/unit/doctor``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from slurmrest_adapter.cli import build
from slurmrest_adapter.cli.main import cli
from slurmrest_adapter.doctor import nodes
from slurmrest_adapter.domain.errors import Rejected
from slurmrest_adapter.domain.jobs import NodeInfo, PartitionInfo, Ping
from tests.fakes.clock import FakeClock
from tests.fakes.slurm import FakeGateway
from tests.unit.doctor.conftest import Slurmrestd

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden"
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
UID = os.geteuid() or 1001


class Slurm(FakeGateway):
    """One partition with GPUs; its jobs do not run."""

    def ping(self) -> Ping:
        return Ping("24.11.5", {"ctl": not self.down})

    def partitions(self, user: str | None = None) -> list[PartitionInfo]:
        return [PartitionInfo("gpu", ("UP",), "n1")]

    def nodes(self, user: str | None = None) -> list[NodeInfo]:
        return [NodeInfo("n1", ("IDLE",), 8, 1000, "gpu:a100:4", partitions=("gpu",))]


class Site:
    """A configuration that works, and the command on it."""

    def __init__(self, directory: Path, slurmrestd: Slurmrestd) -> None:
        self.directory = directory
        self.slurmrestd = slurmrestd
        self.slurm = Slurm(FakeClock())
        shared, state = directory / "pods", directory / "state"
        shared.mkdir()
        shared.chmod(0o711)
        state.mkdir()
        state.chmod(0o700)
        line = {"namespace": "physics", "user": "alice", "uid": UID, "gid": os.getegid() or 1001}
        self.settings: dict[str, Any] = {
            "cluster": "lab",
            "slurm": {
                "endpoints": [slurmrestd.address],
                "token": {"source": "static", "token": "secret-token"},
            },
            "identity": {"map": [line], "min_uid": 0},
            "defaults": {"partition": "gpu"},
            "gpu": {"resources": {"nvidia.com/gpu": "gpu"}},
            "state_dir": str(state),
            "shared_dir": str(shared),
        }
        self.config = directory / "config.yaml"

    def __call__(self, *words: str) -> Result:
        self.config.touch(mode=0o600)
        self.config.write_text(yaml.safe_dump(self.settings))
        return CliRunner().invoke(cli, ["--config", str(self.config), "doctor", *words])

    def document(self, *words: str) -> dict[str, Any]:
        done = self("-o", "json", *words)
        found: dict[str, Any] = json.loads(done.stdout)
        assert done.exit_code == (1 if found["verdict"] == "fail" else 0)
        assert "secret-token" not in done.output
        return found


@pytest.fixture
def site(tmp_path: Path, slurmrestd: Slurmrestd, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in [name for name in os.environ if name.startswith("SLURMREST_")]:
        monkeypatch.delenv(name)
    made = Site(tmp_path, slurmrestd)
    monkeypatch.setattr(build, "gateway_of", lambda settings: made.slurm)
    return made


def verdicts(document: dict[str, Any]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for check in document["checks"]:
        found.setdefault(check["check"], set()).add(check["verdict"])
    return found


def golden(name: str, document: dict[str, Any], site: Site) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    text = text.replace(str(site.directory), "/site").replace(site.slurmrestd.address, "http://slurm:6820")
    for pattern, plain in (
        (r"on \w+, mode", "on ext4, mode"),
        (r"belongs to \w+ \(uid \d+\)", "belongs to root (uid 0)"),
    ):
        text = re.sub(pattern, plain, text)
    text = re.sub(
        r"handed to alice|all pods belong to uid \d+, as this process does", "handed to alice", text
    )
    text = text.replace("can be written; handed", "can be written, and handed")
    path = GOLDEN / f"{name}.json"
    if os.environ.get("REGENERATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_all_is_well(site: Site) -> None:
    document = site.document("--no-jobs")
    assert document["verdict"] == "ok"
    assert document["apiVersion"] == "v0.0.42"
    golden("no-jobs", document, site)


def test_a_partition_that_is_missing(site: Site) -> None:
    site.settings["defaults"]["partition"] = "nowhere"
    golden("missing-partition", site.document(), site)


def test_a_configuration_that_cannot_be_read(site: Site) -> None:
    site.settings["slurm"]["endpoint"] = "x"
    document = site.document()
    assert [check["check"] for check in document["checks"]] == ["config"]
    assert "did you mean endpoints" in document["checks"][0]["seen"]
    golden("no-configuration", document, site)


def test_the_table(site: Site) -> None:
    done = site("--no-jobs")
    assert done.exit_code == 0
    assert "✓ ok" in done.stdout
    site.slurmrestd.database = None
    done = site("--no-jobs")
    assert done.exit_code == 0
    assert "! warn" in done.stdout
    assert "→ " in done.stdout
    site.settings["defaults"]["partition"] = "nowhere"
    done = site()
    assert done.exit_code == 1
    assert "✗ FAIL" in done.stdout
    assert "1 failed" in done.stdout  # one fault is told once


def test_a_job_that_waits(site: Site) -> None:
    """On the real clock, so briefly; nothing is left."""
    document = site.document("--timeout", "1")
    found = verdicts(document)
    assert found["job"] == {"warn"}
    assert {verdict for name in nodes.ON_NODE for verdict in found[name]} == {"skip"}
    assert site.slurm.cancels == [100]
    assert list((site.directory / "pods").iterdir()) == []


def test_a_password_in_an_address_is_not_shown(site: Site) -> None:
    site.settings["slurm"]["endpoints"] = ["http://me:hunter2@127.0.0.1:1"]
    done = site("-o", "json")
    assert done.exit_code == 1
    assert "hunter2" not in done.output


def test_a_token_that_is_not_configured(site: Site) -> None:
    site.settings["slurm"]["token"] = {"source": "hs256"}
    document = site.document()
    found = verdicts(document)
    assert "fail" in found["token"]
    assert found["endpoint"] == {"ok"}
    assert found["slurmctld"] == {"skip"}


def test_nobody_is_mapped(site: Site) -> None:
    site.settings["identity"]["map"] = []
    document = site.document()
    found = verdicts(document)
    assert found["identity"] == {"fail"}
    assert found["job"] == {"skip"}


def test_root_is_mapped(site: Site) -> None:
    site.settings["identity"]["map"][0]["user"] = "root"
    assert verdicts(site.document("--no-jobs"))["identity"] == {"fail"}


def test_slurmctld_is_down(site: Site) -> None:
    site.slurm.down = True
    found = verdicts(site.document())
    assert found["slurmctld"] == {"fail"}
    assert found["partition"] == found["gres"] == found["job"] == {"skip"}


def test_partitions_that_cannot_be_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on 24.11 without slurmdbd: the rest is looked at all the same."""

    def refuse(user: str | None = None) -> list[PartitionInfo]:
        raise Rejected(111, "Connection refused")

    monkeypatch.setattr(site.slurm, "partitions", refuse)
    found = verdicts(site.document("--no-jobs"))
    assert found["partition"] == {"skip"}
    assert found["slurmctld"] == found["gres"] == {"ok"}


def test_help_has_an_example() -> None:
    done = CliRunner().invoke(cli, ["doctor", "--help"])
    assert "Example: slurmrest-adapter doctor" in done.output


def paths(node: Any, at: str = "") -> Iterator[str]:
    """Every key's path, as docs/json.md writes them."""
    if isinstance(node, dict):
        for key, value in node.items():
            here = f"{at}.{key}" if at else key
            yield here
            yield from paths(value, here)
    elif isinstance(node, list):
        for value in node:
            yield from paths(value, f"{at}[]")


def test_every_key_is_described_and_every_described_key_is_there() -> None:
    section = PAGE.split("`slurmrest-adapter/doctor/v1`", 1)[1].split("\n## ", 1)[0]
    described = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
    found = {path for file in GOLDEN.glob("*.json") for path in paths(json.loads(file.read_text()))}
    assert found == described


def test_every_check_is_described() -> None:
    """docs/doctor.md has a row for each check's word, and no other."""
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE))
    source = "".join(path.read_text() for path in (ROOT / "slurmrest_adapter" / "doctor").glob("*.py"))
    names = set()
    for line in re.findall(
        r"^[A-Z_]+(?:, [A-Z_]+)* = (\"[a-z-]+\"(?:, \"[a-z-]+\")*)$", source, re.MULTILINE
    ):
        names |= set(re.findall(r'"([a-z-]+)"', line))
    assert names == described
