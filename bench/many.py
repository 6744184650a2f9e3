"""A pod of 20 containers to its end, beside a shell loop that starts 20 `apptainer exec` with `&`."""

from __future__ import annotations

from bench.rounds import Verdict
from bench.runner import bench

CONTAINERS = 20
ROUNDS = 7
MOST = 1.5


def run() -> list[Verdict]:
    """The verdicts; `plain` mode is only printed."""
    found = []
    with bench() as lab:
        for mode, most in (("sandbox", MOST), ("plain", None)):
            each = lab.do("many", plan=lab.plan(*["true"] * CONTAINERS, mode=mode), rounds=ROUNDS)
            found.append(
                Verdict(f"{CONTAINERS} containers, {mode} / a loop of apptainer exec", each, most=most)
            )
    return found
