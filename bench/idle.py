"""The runner's own processes beside five idle containers: memory and processor.

Own is every process of the job but the containers' programs: FUSE servers and containers' first
processes count too. Memory is PSS, in which shared pages count in equal parts to who shares them; the
control is a bare interpreter that waits, measured at the same moment.
"""

from __future__ import annotations

import os

from bench.rounds import Verdict
from bench.runner import bench

CONTAINERS = 5
SETTLE = 5  # seconds
MOST_SHARE = 0.005
MOST_MEMORY = 2.5


def run() -> list[Verdict]:
    """The verdicts; with BENCH_LONG set it looks for five minutes rather than one."""
    long = bool(os.environ.get("BENCH_LONG"))
    with bench() as lab:
        plan = lab.plan(*["exec sleep 100000"] * CONTAINERS)
        found = lab.do("idle", plan=plan, settle=SETTLE, window=60 if long else 20, rounds=5 if long else 3)
    return [
        Verdict(
            f"PSS beside {CONTAINERS} idle containers / of a bare Python", found["ratios"], most=MOST_MEMORY
        ),
        Verdict(
            f"processor time beside {CONTAINERS} idle containers / time", found["shares"], most=MOST_SHARE
        ),
    ]
