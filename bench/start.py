"""From the job's first instruction to the container's, beside a bare `apptainer exec` of the same image.

The image is on the node already. The container says its first word on a FIFO that both sides have.
"""

from __future__ import annotations

from bench.rounds import Verdict
from bench.runner import bench

ROUNDS = 15
MOST = 1.8


def run() -> list[Verdict]:
    """The verdicts; `plain` mode is only printed."""
    found = []
    with bench() as lab:
        for mode, most in (("sandbox", MOST), ("plain", None)):
            plan = lab.plan("echo >/bench/fifo", mode=mode)
            each = lab.do("start", plan=plan, rounds=ROUNDS)
            found.append(Verdict(f"job to container, {mode} / apptainer exec", each, most=most))
    return found
