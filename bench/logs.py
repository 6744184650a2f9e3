"""1 GiB of 100-byte lines through a container's log, beside the same producer piped into `cat > file`.

The log is rotated as it is by default.

The runner's memory is looked at over the whole time: its most, over what it was when the container began.
"""

from __future__ import annotations

from bench.rounds import Verdict
from bench.runner import bench
from slurmrest_adapter.podrunner.logs import FILES, SIZE

LINE = "x" * 99
BYTES = 2**30
BATCH = 2**20  # bytes that the runner writes at once, at most
ROUNDS = 3
LEAST = 0.3
MOST_GROWTH = 1.2


def run() -> list[Verdict]:
    """The verdicts; throughput as a ratio, so more is better."""
    with bench() as lab:
        plan = lab.plan(f"echo >/bench/fifo; yes {LINE} | head -c {BYTES - BYTES % 100}")
        spec = {"bytes": BYTES - BYTES % 100, "line": LINE, "size": SIZE, "files": FILES, "batch": BATCH}
        found = lab.do("logs", plan=plan, rounds=ROUNDS, **spec)
    rates = [1 / ratio for ratio in found["ratios"]]
    return [
        Verdict("bytes/s through a container's log / through cat", rates, least=LEAST),
        Verdict("the runner's most memory meanwhile / at the start", found["growth"], most=MOST_GROWTH),
    ]
