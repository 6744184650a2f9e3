"""The README's first command."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.slurm.conftest import ROOT, Lab

pytestmark = pytest.mark.slurm


def test_the_demo_shows_what_it_promises(lab: Lab) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURMREST_")}
    done = subprocess.run(
        [ROOT / "scripts" / "demo"], capture_output=True, text=True, env=environment, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    job = re.search(r"Slurm job (\d+) as alice", done.stderr)
    assert job
    assert re.search(r"^Running: Slurm job \d+ is running on n\d, GPUs \d,\d$", done.stderr, re.MULTILINE)
    queue = out[
        out.index("JOBID") : out.index("what the containers") if "what the containers" in out else None
    ]
    both = [line for line in queue.splitlines() if "RUNNING" in line and ("alice" in line or "bob" in line)]
    assert any("bobs-training" in line for line in both)
    assert any("two-gpus-" in line and job[1] in line for line in both)
    seen = dict(re.findall(r"(left|right) sees /dev/nvidia(\d)$", out, re.MULTILINE))
    assert set(seen) == {"left", "right"}
    assert seen["left"] != seen["right"]
    assert "exit code of run: 0" in out
    assert re.search(r"usage: [1-9]\d* GPU-seconds, .*\(slurmdbd\)", out)
    accounted = out[out.index("AllocTRES") :]
    assert re.search(rf"^{job[1]} .*alice.*COMPLETED", accounted, re.MULTILINE)
    assert re.search(r"^\d+ .*bobs-training .*bob", accounted, re.MULTILINE)
