"""Records what real slurmrestds answer: ``python -m tests.fakes.record_slurmrestd`` with both labs up.

Writes one file for each release and version, `RECORDED`: operation → status, content type, body. Long
lists keep the rows about the one job that was made for it.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import requests

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "unit" / "data" / "slurmrestd"
SLURM_LAB = ROOT / "scripts" / "slurm-lab"
SPECS = ROOT / "openapi"


class Recorder:
    """Asks one slurmrestd in one version as alice, and keeps the answers."""

    def __init__(self, release: str, version: str, base: str, token: str) -> None:
        self.release, self.version, self.base = release, version, base
        self.headers = {"X-SLURM-USER-TOKEN": token}
        self.kept: dict[str, Any] = {}
        self.job_id = 0

    def ask(self, operation: str, method: str, path: str, body: object = None) -> Any:
        """One call, kept under the operation's name."""
        url = f"{self.base}/{path.replace('VERSION', self.version)}"
        answer = requests.request(method, url, json=body, headers=self.headers, timeout=30)
        content = answer.json()
        for name in ("jobs", "nodes", "partitions"):
            if isinstance(content.get(name), list):
                ours = [row for row in content[name] if str(row.get("job_id")) == str(self.job_id)]
                content[name] = (ours or content[name])[-1:]
        kept = {"status": answer.status_code, "type": answer.headers["Content-Type"], "body": content}
        self.kept[operation] = kept
        return content

    def record(self) -> None:
        """A job from its submit to its account, and the cluster around it."""
        name = f"recorded-{uuid.uuid4().hex[:12]}"
        description = {
            "name": name,
            "script": "#!/bin/sh\nsleep 1\nexit 3\n",
            "environment": ["PATH=/usr/bin:/bin"],
            "current_working_directory": "/",
            "partition": "gpu",
            "tres_per_node": "gres/gpu:a100:1",
            "comment": "a comment",
            "standard_output": "/dev/null",
            "standard_error": "/dev/null",
            "memory_per_node": {"set": True, "infinite": False, "number": 77},
            "time_limit": {"set": True, "infinite": False, "number": 3},
        }
        submitted = self.ask("submit", "POST", "slurm/VERSION/job/submit", {"job": description})
        job_id = self.job_id = submitted["job_id"]
        self.ask("update", "POST", f"slurm/VERSION/job/{job_id}", {"comment": "a new comment"})
        self._until("job", f"slurm/VERSION/job/{job_id}", lambda row: "RUNNING" in row["job_state"])
        self.ask("states", "GET", f"slurm/VERSION/jobs/state/?job_id={job_id}")
        self.ask("jobs", "GET", "slurm/VERSION/jobs/")
        for operation, path in (("ping", "ping"), ("partitions", "partitions"), ("nodes", "nodes")):
            self.ask(operation, "GET", f"slurm/VERSION/{path}/")
        self._until("account", f"slurmdb/VERSION/job/{job_id}", lambda row: row["time"]["end"])
        self.ask("accounts", "GET", f"slurmdb/VERSION/jobs/?job_name={name}&users=alice")
        self.ask("kill", "DELETE", f"slurm/VERSION/job/{job_id}")
        self.ask("kill_many", "DELETE", "slurm/VERSION/jobs/", {"jobs": [str(job_id), "10000000"]})
        document = {"job_id": job_id, "name": name, "release": self.release, "answers": self.kept}
        target = RECORDED / f"{self.release}-{self.version}.json"
        target.write_text(json.dumps(document, separators=(",", ":")) + "\n")

    def _until(self, operation: str, path: str, enough: Any) -> None:
        end = time.monotonic() + 60
        while True:
            rows = self.ask(operation, "GET", path)["jobs"]
            if rows and enough(rows[0]):
                return
            assert time.monotonic() < end, rows
            time.sleep(0.1)


def main() -> None:
    """Record all releases through all versions they have a specification of."""
    RECORDED.mkdir(parents=True, exist_ok=True)
    for directory in sorted(path for path in SPECS.iterdir() if path.is_dir()):
        options = ["--version", directory.name]

        def lab(*arguments: str, options: list[str] = options) -> str:
            command = [str(SLURM_LAB), *options, *arguments]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        lab("up")
        base = json.loads(lab("status", "--output", "json"))["endpoint"]
        for spec in sorted(directory.glob("v*.json")):
            Recorder(directory.name, spec.stem, base, lab("token", "alice").strip()).record()


if __name__ == "__main__":
    main()
